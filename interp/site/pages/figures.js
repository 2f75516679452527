// Draws the figures of a page one after the other, and makes its table sort and filter. No dependency but
// plotly.js, which pages with figures load first.
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
    const place = box.appendChild(document.createElement("div"));
    place.style.height = "100%";
    const fixed = box.style.width !== "";
    Plotly.newPlot(place, data, layout, { ...CONFIG, responsive: !fixed });
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

  const rowsOf = (body) => [...body.rows].filter((row) => !row.classList.contains("group"));

  // A button in a column's head sorts by it, within each group; what has no number comes last.
  function sorting(table) {
    const heads = [...table.tHead.rows[0].cells];
    const value = (row, at, number) => {
      const text = row.cells[at].dataset.value ?? row.cells[at].textContent.trim();
      return number ? (text === "" ? null : Number(text)) : text;
    };
    heads.forEach((head, at) => {
      const button = head.querySelector("button");
      if (!button) return;
      const number = head.dataset.sort === "number";
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sign = down ? -1 : 1;
        for (const body of table.tBodies) {
          const rows = rowsOf(body);
          rows.sort((a, b) => {
            const [x, y] = [value(a, at, number), value(b, at, number)];
            if (number && (x === null || y === null)) return (x === null) - (y === null);
            return sign * (number ? x - y : x.localeCompare(y, "en", { numeric: true }));
          });
          body.append(...rows);
        }
      });
    });
  }

  // Rows that have every word that is typed, and the chosen value of every column that has a list of them.
  function filtering(box, table) {
    const input = box.querySelector("input"),
      chosen = [...box.querySelectorAll("select")],
      told = box.querySelector("output");
    const all = [...table.tBodies].reduce((sum, body) => sum + rowsOf(body).length, 0);
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const body of table.tBodies) {
        let any = false;
        for (const row of rowsOf(body)) {
          const text = `${row.textContent} ${row.dataset.words ?? ""}`.toLowerCase();
          const has = ({ value, dataset }) => !value || row.dataset[dataset.column] === value;
          row.hidden = !(words.every((word) => text.includes(word)) && chosen.every(has));
          any ||= !row.hidden;
          shown += !row.hidden;
        }
        body.hidden = !any;
      }
      const what = told.dataset.what;
      told.textContent = shown < all ? `${shown} of ${all} ${what}` : `${all} ${what}`;
    };
    box.addEventListener("input", apply);
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      input.value = "";
      apply();
    });
    box.hidden = false;
    apply();
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

  const table = document.querySelector("table.sorted");
  if (table) {
    sorting(table);
    filtering(document.querySelector(".filter"), table);
  }
  reachable();
  addEventListener("resize", reachable);
  for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", reachable);
  if (document.querySelector(".drawing")) drawAll();
  else root.dataset.figures = "drawn";
})();
