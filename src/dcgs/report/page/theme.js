// Before anything is painted: say that scripts run, and set the theme that was chosen last.

function remembered() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

const root = document.documentElement;
root.classList.add("js");
const chosen = remembered();
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
