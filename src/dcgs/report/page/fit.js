// The page of a fit: its charts. What they show is in the data; no chart depends on a link.

JSON.parse(document.getElementById("study-data").textContent).forEach((data) => {
  const section = document.querySelector(`[data-experiment="${data.name}"]`);
  makeChart(section, data, { speed: 1, text: "" });
});
