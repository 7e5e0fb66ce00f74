"""Settings for all tests: one BLAS thread per test process, so that parallel ones do not crowd."""

from threadpoolctl import threadpool_limits

threadpool_limits(1, user_api="blas")
