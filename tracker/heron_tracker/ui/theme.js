// Runs before the first paint, so that a dark page never flashes white. Not a module: modules run too late for that.
(() => {
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("heron.theme");
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (wanted.matches ? "dark" : "light");
    document.dispatchEvent(new Event("heron:theme"));
  };
  wanted.addEventListener("change", apply);
  document.addEventListener("heron:toggle-theme", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    // What the system wants is not remembered: the page goes on following it.
    if (next === (wanted.matches ? "dark" : "light")) localStorage.removeItem("heron.theme");
    else localStorage.setItem("heron.theme", next);
    apply();
  });
  apply();
})();
