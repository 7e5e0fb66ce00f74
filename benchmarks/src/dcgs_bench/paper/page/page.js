// The whole page: the link speed that all charts and tables share.

function chosenLink(select) {
  return { speed: Number(select.value), text: select.selectedOptions[0].textContent };
}

function fillTable(chart) {
  chart.curves.forEach(({ key, columns }) => {
    const row = chart.section.querySelector(`.ends tr[data-curve="${CSS.escape(key)}"]`);
    const { time, share: waiting } = modeled(columns.computing.at(-1), columns.peak_bytes.at(-1), chart);
    row.querySelector('[data-role="modeled"]').textContent = duration(time);
    row.querySelector('[data-role="waiting"]').textContent = share(waiting);
  });
  chart.section.querySelectorAll('[data-role="speed"]').forEach((place) => { place.textContent = chart.link.text; });
}

function fillAnswer(link) {
  document.querySelectorAll("#answer tr[data-bytes]").forEach((row) => {
    const { computing, bytes, links } = row.dataset;
    const { time } = modeled(Number(computing), Number(bytes), { data: { links: Number(links) }, link });
    row.querySelector('[data-role="modeled"]').textContent = duration(time);
  });
  document.querySelectorAll('#answer [data-role="speed"]').forEach((place) => { place.textContent = link.text; });
}

function startCharts(select) {
  const sections = [...document.querySelectorAll("section[data-experiment]")];
  const study = JSON.parse(document.getElementById("study-data").textContent);
  const drawn = study.filter(({ curves }) => curves.length > 0);
  const charts = drawn.map((data) => makeChart(
    sections.find((section) => section.dataset.experiment === data.name), data, chosenLink(select),
  ));
  select.addEventListener("change", () => {
    fillAnswer(chosenLink(select));
    charts.forEach((chart) => {
      chart.link = chosenLink(select);
      draw(chart);
      fillTable(chart);
    });
  });
}

startCharts(document.querySelector('[data-role="link"]'));
