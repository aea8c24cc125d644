// The theme that was chosen, set before anything is drawn. Without a choice the system's holds.
function setTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

try {
  setTheme(localStorage.getItem("mneme.theme"));
} catch { /* the browser keeps nothing; the system's theme holds */ }
