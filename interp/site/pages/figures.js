// Draws the figures of a page one after the other. No dependency but plotly.js, which such a page loads first.
"use strict";
(() => {
  const [TEMPLATE, CONFIG] = ["TEMPLATE", "CONFIG"]; // what all figures share; the builder puts it here
  const root = document.documentElement;

  function draw(box) {
    const source = box.querySelector("script");
    if (!source) return;
    const { data, layout } = JSON.parse(source.textContent);
    if (box.dataset.template) layout.template = TEMPLATE;
    source.remove();
    const room = box.parentElement.clientWidth,
      maps = data.every(({ type }) => type === "heatmap") && box.style.width === "",
      axes = Object.entries(layout).filter(([name]) => name.startsWith("xaxis")),
      beside = axes.some(([, { domain }]) => domain && domain[0] > 0);
    if (maps && !beside && room < parseFloat(box.style.minWidth)) { // all of the map, and its numbers by touch
      for (const map of data) delete map.texttemplate;
      box.style.minWidth = 0;
    }
    const place = box.appendChild(document.createElement("div"));
    place.style.height = "100%";
    const fixed = box.style.width !== "";
    Plotly.newPlot(place, data, layout, { ...CONFIG, responsive: !fixed });
    if (layout.meta?.graph) box.parentElement.scrollLeft = (box.parentElement.scrollWidth - room) / 2;
  }

  function drawAll() {
    const waiting = [...document.querySelectorAll(".drawing")].filter((box) => {
      const closed = box.closest("details:not([open])");
      if (closed) closed.addEventListener("toggle", () => draw(box), { once: true });
      const hidden = box.closest("[hidden]");
      if (hidden) hidden.addEventListener("shown", () => draw(box), { once: true });
      return !closed && !hidden;
    });
    const next = () => {
      const box = waiting.shift();
      if (!box) {
        root.dataset.figures = "drawn";
        reachable();
        return;
      }
      draw(box);
      setTimeout(next);
    };
    next();
  }

  // What scrolls sideways can be reached and moved by the keyboard, and only that.
  function reachable() {
    for (const box of document.querySelectorAll(".scroll, .plot, pre")) {
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", box.matches(".plot") ? "Figure, scrolls sideways" : "Scrolls sideways");
        box.onscroll = () => further(box);
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
      }
      if (box.matches(".plot")) further(box);
    }
  }

  // A figure that goes on to the right fades there; of tables the style sheet shows it.
  function further(box) {
    box.classList.toggle("further", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  }

  // On a page about several models one is shown at a time.
  const which = document.querySelector("select.which");
  which?.addEventListener("change", () => {
    for (const part of document.querySelectorAll("[data-model]:not(.cx *)")) { // the explorer's own parts have such, too
      part.hidden = part.dataset.model !== which.value;
      if (!part.hidden) part.dispatchEvent(new Event("shown"));
    }
    reachable();
  });

  reachable();
  addEventListener("resize", reachable);
  for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", reachable);
  if (document.querySelector(".drawing")) drawAll();
  else root.dataset.figures = "drawn";
})();
