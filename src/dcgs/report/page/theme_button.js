// The button that changes the theme.

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
