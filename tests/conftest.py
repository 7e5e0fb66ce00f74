"""Settings for all tests: one BLAS thread per test process, so that parallel ones do not crowd.

Ctrl-C is heard, also where tests were started in the background by a shell that has it ignored: what is
ignored is so in all processes that are started, and some tests send it to them.
"""

import signal

from threadpoolctl import threadpool_limits

threadpool_limits(1, user_api="blas")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
