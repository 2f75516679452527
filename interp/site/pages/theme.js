// Light or dark: as the system is, until the reader chooses; the choice is remembered. Runs before the page is painted.
"use strict";
(() => {
  const root = document.documentElement,
    system = matchMedia("(prefers-color-scheme: dark)"),
    KEY = "carrylens-theme";
  // What the reader chose here; or on the pages of MkDocs around this one, which remember it under their folder.
  const remembered = () => {
    try {
      const around = Object.keys(localStorage).find(
        (key) => key.endsWith(".__palette") && location.pathname.startsWith(key.slice(0, -".__palette".length)),
      );
      const scheme = around && JSON.parse(localStorage.getItem(around)).color?.scheme;
      return localStorage.getItem(KEY) ?? (scheme ? (scheme === "slate" ? "dark" : "light") : null);
    } catch {
      return null; // no storage for pages from disk: the system's theme
    }
  };
  const preferred = () => (system.matches ? "dark" : "light");
  const button = document.createElement("button");

  function apply(theme) {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light theme" : "Dark theme";
  }

  button.type = "button";
  button.className = "theme";
  button.addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.removeItem(KEY);
      if (theme !== (remembered() ?? preferred())) localStorage.setItem(KEY, theme);
    } catch {
      // chosen for this page alone
    }
    apply(theme);
  });
  system.addEventListener("change", () => apply(remembered() ?? preferred()));
  addEventListener("storage", () => apply(remembered() ?? preferred()));
  addEventListener("DOMContentLoaded", () => (document.querySelector("header, nav > div") ?? document.body).prepend(button));
  apply(remembered() ?? preferred());
})();
