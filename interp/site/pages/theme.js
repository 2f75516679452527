// Light or dark: as the system is, until the reader chooses; the choice is remembered. Runs before the page is painted.
"use strict";
(() => {
  const root = document.documentElement,
    system = matchMedia("(prefers-color-scheme: dark)"),
    KEY = "carrylens-theme";
  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
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
      if (theme === preferred()) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme);
    } catch {
      // chosen for this page alone
    }
    apply(theme);
  });
  system.addEventListener("change", () => apply(remembered() ?? preferred()));
  addEventListener("storage", () => apply(remembered() ?? preferred()));
  addEventListener("DOMContentLoaded", () => (document.querySelector("header") ?? document.body).prepend(button));
  apply(remembered() ?? preferred());
})();
