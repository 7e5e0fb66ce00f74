// The whole page: the link speed that all charts and tables share, and the theme.

function chosenLink(select) {
  return { speed: Number(select.value), text: select.selectedOptions[0].textContent };
}

function fillTable(chart) {
  chart.curves.forEach(({ key, columns }) => {
    const row = chart.section.querySelector(`.ends tr[data-curve="${CSS.escape(key)}"]`);
    const { time, share: waiting } = modeled(columns.computing.at(-1), columns.bytes.at(-1), chart);
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

function remember(theme) {
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Some browsers keep nothing for pages from a folder; the theme then lasts as long as the page.
  }
}

// From auto to the theme that is not there now, to the other, and back to auto.
function startTheme(button) {
  const root = document.documentElement;
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const order = systemIsDark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
  const show = (theme) => { button.textContent = `Theme: ${theme}`; };
  show(root.dataset.theme || "auto");
  button.addEventListener("click", () => {
    const theme = order[(order.indexOf(root.dataset.theme || "auto") + 1) % order.length];
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    show(theme);
    remember(theme);
  });
}

startTheme(document.querySelector('[data-role="theme"]'));
startCharts(document.querySelector('[data-role="link"]'));
