// The explorer's view: one model, or two that move together by answer digit. It holds their weights and runs them
// itself (forward.js): any problem, any components removed, scaled or patched from a second problem, any written digit
// changed. Everything is plain HTML and SVG, drawn in a few milliseconds and read by screen readers.

import { arcs, flow, plane, stepData, svgFile } from "./drawings.js";
import { frameOf, look, mergedSteps } from "./frames.js";
import { panel, reveal, skeleton } from "./panel.js";
import { put, readLink } from "./link.js";
import { editor, escaped, stepper, stepText, title, tokenText, verdict } from "./parts.js";

const KEPT = ["problem", "second", "click", "method", "against", "log", "edits", "forced", "snapshot"];

export function mount(root, start, host) {
  const n = start.models.length,
    fresh = {
      second: "",
      click: "remove",
      method: start.method,
      against: "runner-up",
      log: false,
      forced: {},
      edits: start.models.map(() => ({})),
      snapshot: start.models.map(({ steps }) => steps.length - 1),
      problem: start.problem,
    };
  let state = {
    ...start,
    ...structuredClone(fresh),
    host,
    at: 0,
    hover: [],
    head: [],
    loaded: start.models.map(() => []),
    means: {},
  };
  const find = (selector) => root.querySelector(selector);
  root.classList.add("cx");
  root.tabIndex = -1;
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take Enter for its own
  put(root, skeleton(state));

  const targets = () => state.steps[state.at].at;

  const isNarrow = () => root.clientWidth < 480;

  function draw(settled = true) {
    state.narrow = isNarrow();
    const active = root.contains(document.activeElement) ? document.activeElement : null,
      focused = active ? { ...active.dataset } : {};
    const opened = find(".cx-options").open,
      { key, label, sentence, at } = state.steps[state.at];
    put(
      find(".cx-verdicts"),
      state.frames
        .map((frame, i) => verdict(frame, n > 1 ? `<span class="cx-letter">${"AB"[i]}</span> ` : "", state))
        .join(""),
    );
    put(find(".cx-stepper"), stepper(state));
    find(".cx-truth").textContent = `${label}: ${sentence}`;
    const sliding = active?.type === "range" && !settled; // a slider that is held must stay the same element
    if (sliding)
      active.nextElementSibling.textContent =
        "scale" in focused ? `\u00d7 ${active.value}` : stepText(state.frames[focused.model]);
    else
      put(
        find(".cx-panels"),
        state.frames
          .map(
            (frame) =>
              `<article aria-label="${escaped(frame.entry.name)}">${title(frame, n > 1)}${editor(
                frame,
                state,
              )}<div class="cx-body"></div></article>`,
          )
          .join(""),
      );
    root.querySelectorAll(".cx-body").forEach((body, i) => {
      put(body, panel(state.frames[i], state, at[i]));
    });
    root.querySelectorAll(".cx-arcs .cx-scroll").forEach(reveal);
    find(".cx-options").open = opened;
    const shown = state.frames.findIndex((_, i) => at[i] >= 0),
      frame = state.frames[shown],
      forced = find("[data-forced]");
    put(
      forced,
      `<option value="">its own (${escaped(tokenText(frame.entry, frame.run.answer[at[shown]]))})</option>${frame.entry.vocabulary
      .slice(0, 24)
      .map(
        (word, token) =>
          `<option value="${token}" ${state.forced[key] === token ? "selected" : ""}>${escaped(word)}</option>`,
      )
      .join("")}`,
    );
    forced.disabled = !state.frames.some(({ layout }, i) => at[i] >= 0 && layout.queries[at[i]] + 1 < layout.length);
    for (const [name, value] of [
      ["problem", state.problem],
      ["second", state.second],
    ])
      if (find(`[data-${name}]`) !== active) find(`[data-${name}]`).value = value;
    for (const name of ["method", "against", "click"]) find(`[data-${name}]`).value = state[name];
    find("[data-log]").value = state.log ? "1" : "";
    find("[data-walk='-1']").disabled = state.at === 0;
    find("[data-walk='1']").disabled = state.at === state.steps.length - 1;
    find("[data-reset]").disabled =
      !state.edits.some((edits) => Object.keys(edits).length) && !Object.keys(state.forced).length;
    if (sliding) {
      host.link?.(link());
      return;
    }
    const same = ["edit", "scale", "patch", "snapshot", "add"].find((name) => name in focused);
    if (same) find(`[data-model="${focused.model}"][data-${same}="${focused[same]}"]`)?.focus({ preventScroll: true });
    else if (focused.step) find(`[data-step="${state.at}"]`)?.focus();
    else if ("arcs" in focused) find("[data-arcs]")?.focus({ preventScroll: true });
    else if (focused.walk && active.disabled) find("[data-step][tabindex='0']")?.focus();
    host.link?.(link());
  }

  /** The state as text: what differs from a fresh view; empty for that. */
  function link() {
    const differing = Object.fromEntries(
      KEPT.filter((name) => JSON.stringify(state[name]) !== JSON.stringify(fresh[name])).map((name) => [
        name,
        state[name],
      ]),
    );
    if (state.at) differing.step = state.steps[state.at].key;
    return Object.keys(differing).length ? JSON.stringify(differing) : "";
  }

  /** Changes the state, if it can be computed; else says why not and keeps it. */
  function change(changes, settled = true) {
    const next = { ...state, ...changes },
      alert = find(".cx-alert"),
      key = changes.step ?? state.steps?.[state.at].key,
      several = n > 1;
    const failed = (error) => {
      alert.hidden = false;
      alert.textContent = error.message;
      find("[data-problem]").setAttribute("aria-invalid", String("problem" in changes));
      return false;
    };
    try {
      next.frames = next.models.map((entry, i) => {
        try {
          return frameOf(next, i);
        } catch (error) {
          if (several) error.message = `${entry.name}: ${error.message}`;
          throw error;
        }
      });
    } catch (error) {
      if (!error.unread || !host.encode) return failed(error);
      host.encode(error.unread, (reply) => {
        if (reply.error) return failed(new Error(reply.error));
        reply.rows.forEach((row, i) => row && (state.models[i].task.rows[row[0]] = row[1]));
        return change(changes, settled);
      });
      return false;
    }
    alert.hidden = true;
    find("[data-problem]").setAttribute("aria-invalid", "false");
    next.problem = next.frames[0].layout.problem;
    next.steps = mergedSteps(next.frames);
    next.at = Math.max(
      0,
      next.steps.findIndex((step) => step.key === key),
    );
    next.hover = [];
    state = Object.assign(state, next);
    draw(settled);
    return true;
  }

  /** The same, where it may take a while: the page says so first. */
  function slowly(changes, settled = true) {
    if ({ ...state, ...changes }.method !== "mean") return change(changes, settled);
    root.setAttribute("aria-busy", "true");
    return setTimeout(() => {
      change(changes, settled);
      root.removeAttribute("aria-busy");
    }, 20);
  }

  const editsWith = (i, name, edit) =>
    state.edits.map((edits, j) => {
      if (i !== j) return edits;
      const { [name]: _, ...others } = edits;
      return edit ? { ...edits, [name]: edit } : others;
    });

  function walk(to) {
    const at = Math.min(state.steps.length - 1, Math.max(0, to));
    if (at === state.at) return;
    Object.assign(state, { at, hover: [] });
    draw();
  }

  function hover(i, at) {
    if (targets()[i] < 0 || state.hover[i] === at) return;
    state.hover[i] = at;
    const article = root.querySelectorAll("article")[i],
      old = article.querySelector(".cx-arcs"),
      made = arcs(state.frames[i], state, targets()[i]);
    if (!old) return;
    old.querySelector("small").textContent = made.label;
    const box = old.querySelector(".cx-scroll"),
      focused = box.contains(document.activeElement);
    put(box, made.svg);
    if (focused) box.firstChild.focus({ preventScroll: true });
  }

  function force(token) {
    const key = state.steps[state.at].key,
      { [key]: _, ...others } = state.forced;
    slowly({ forced: token === null ? others : { ...others, [key]: token } });
  }

  const patchOf = (i, how) => (how === "here" ? [state.frames[i].layout.queries[targets()[i]]] : true);

  const reset = () => change({ edits: structuredClone(fresh.edits), forced: {} });

  function download(name, type, content) {
    const a = document.createElement("a");
    a.href = URL.createObjectURL(new Blob([content], { type }));
    a.download = name;
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 1000);
  }

  const fileName = () =>
    `${state.frames.map(({ entry }) => entry.name).join("-and-")}-${state.problem.replace(/\W+/g, "-")}-${state.steps[state.at].label}`.replace(
      /[^\w.-]+/g,
      "",
    );

  function drawings() {
    return state.frames.flatMap((frame, i) =>
      targets()[i] < 0
        ? []
        : [
            ["What looks where", arcs],
            ["What adds to the answer", flow],
            ["The digits\u2019 plane", plane],
          ]
            .map(([name, make]) => ({
              title: `${frame.entry.name}, ${frame.layout.problem}, ${frame.layout.labels[targets()[i]]}: ${name}`,
              ...make(frame, state, targets()[i]),
            }))
            .filter(({ svg }) => svg),
    );
  }

  const asJson = () =>
    JSON.stringify({
      problem: state.problem,
      state: JSON.parse(link() || "{}"),
      models: state.frames.map((frame, i) => ({
        name: frame.entry.name,
        answer: frame.answer,
        right: frame.right,
        steps: frame.layout.labels.map((_, target) => {
          look(frame, state, target);
          return stepData(frame, target);
        }),
      })),
    });

  root.addEventListener("click", (event) => {
    const token = event.target.closest("svg[data-arcs] [data-at]"),
      button = event.target.closest("button");
    if (token) {
      const i = [...root.querySelectorAll("article")].indexOf(token.closest("article")),
        step = state.frames[i].layout.queries.indexOf(Number(token.dataset.at));
      if (step >= 0) walk(state.steps.findIndex(({ at }) => at[i] === step));
    }
    if (!button || button.disabled) return;
    const { model, edit, back, step, walk: by } = button.dataset;
    if (step) walk(Number(step));
    if (by) walk(state.at + Number(by));
    if ("reset" in button.dataset) reset();
    if (edit) {
      const i = Number(model),
        patch = state.second && state.click !== "remove" ? patchOf(i, state.click) : false;
      slowly({ edits: editsWith(i, edit, state.edits[i][edit] ? null : { scale: patch ? 1 : 0, patch }) });
    }
    if (back) slowly({ edits: editsWith(Number(model), back, null) });
    if ("svg" in button.dataset) download(`${fileName()}.svg`, "image/svg+xml", svgFile(drawings(), root));
    if ("json" in button.dataset) {
      download(`${fileName()}.json`, "application/json", asJson());
      draw();
    }
    if ("link" in button.dataset) {
      const said = (words) => {
        button.textContent = words;
        setTimeout(() => {
          button.textContent = "Copy link";
        }, 2000);
      };
      const copied = navigator.clipboard?.writeText(location.href) ?? Promise.reject(new Error("no clipboard"));
      copied.then(
        () => said("Copied"),
        () => said("It is in the address bar"),
      );
    }
  });

  root.addEventListener("input", ({ target }) => {
    const i = Number(target.dataset.model);
    if (target.dataset.scale)
      slowly(
        {
          edits: editsWith(i, target.dataset.scale, {
            ...state.edits[i][target.dataset.scale],
            scale: Number(target.value),
          }),
        },
        false,
      );
    if ("snapshot" in target.dataset)
      slowly({ snapshot: state.snapshot.map((old, j) => (i === j ? Number(target.value) : old)) }, false);
  });

  root.addEventListener("change", ({ target }) => {
    const { dataset, value } = target,
      i = Number(dataset.model);
    if (target.type === "range") draw();
    if ("example" in dataset && value) {
      target.value = "";
      slowly({ problem: value });
    }
    if ("method" in dataset) slowly({ method: value });
    if ("against" in dataset) change({ against: value });
    if ("log" in dataset) change({ log: value === "1" });
    if ("click" in dataset) change({ click: value });
    if ("second" in dataset) {
      const unpatched = state.edits.map((edits) =>
        Object.fromEntries(Object.entries(edits).filter(([, { patch }]) => !patch)),
      );
      change({ second: value.trim(), ...(value.trim() ? {} : { edits: unpatched }) });
    }
    if ("forced" in dataset) force(value === "" ? null : Number(value));
    if ("add" in dataset && value)
      slowly({
        edits: editsWith(
          i,
          value,
          state.second && state.click !== "remove"
            ? { scale: 1, patch: patchOf(i, state.click) }
            : { scale: 0, patch: false },
        ),
      });
    if (dataset.patch)
      slowly({
        edits: editsWith(i, dataset.patch, {
          ...state.edits[i][dataset.patch],
          patch: target.checked && patchOf(i, state.click),
        }),
      });
  });

  addEventListener("resize", () => isNarrow() !== state.narrow && root.isConnected && draw());
  root.addEventListener("mousemove", ({ target }) => {
    const token = target.closest?.("article [data-at]"),
      card = target.closest?.(".cx-head");
    const article = (token ?? card)?.closest("article");
    if (!article) return;
    const i = [...root.querySelectorAll("article")].indexOf(article);
    if (card && state.head[i] !== card.dataset.edit) {
      state.head[i] = card.dataset.edit;
      state.hover[i] = undefined;
      hover(i, state.frames[i].layout.queries[targets()[i]]);
    }
    if (token && !card) hover(i, Number(token.dataset.at));
  });
  root.addEventListener("mouseout", ({ target, relatedTarget }) => {
    const card = target.closest?.(".cx-heads");
    if (!card || card.contains(relatedTarget)) return;
    const i = [...root.querySelectorAll("article")].indexOf(card.closest("article"));
    state.head[i] = null;
    state.hover[i] = undefined;
    hover(i, state.frames[i].layout.queries[targets()[i]]);
  });

  const submit = () => slowly({ problem: find("[data-problem]").value.trim() });
  root.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (key === "Enter" && target.matches("[data-problem]")) {
      // forms in JupyterLab do not do it themselves
      event.preventDefault();
      event.stopPropagation();
      submit();
      return;
    }
    if (event.altKey || event.ctrlKey || event.metaKey || target.matches("input, select, textarea")) return;
    const onArcs = target.matches("svg[data-arcs]"),
      by = { ArrowLeft: -1, ArrowRight: 1 }[key],
      up = { ArrowUp: -1, ArrowDown: 1 }[key];
    const token = /^\d$/.test(key) ? state.models[0].task.digits[Number(key)] : undefined,
      digit = token !== undefined && !find("[data-forced]").disabled;
    const act = by
      ? () => walk(state.at + by)
      : up && onArcs
        ? () => {
            const i = [...root.querySelectorAll("article")].indexOf(target.closest("article")),
              { layout } = state.frames[i];
            hover(i, Math.min(layout.length - 1, Math.max(0, (state.hover[i] ?? layout.queries[targets()[i]]) + up)));
          }
        : digit
          ? () => force(token)
          : {
              Backspace: () => force(null),
              c: () => change({ against: state.against === "mean" ? "runner-up" : "mean" }),
              l: () => change({ log: !state.log }),
              r: reset,
              "/": () => find("[data-problem]").focus(),
            }[key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });

  const linked = readLink(host.linked, start.models);
  try {
    if (!change(linked)) change({});
  } catch {
    change({});
  } // a link of another page
  return {
    change,
    drawings,
    asJson,
    get state() {
      return state;
    },
  };
}

// ---- hosts

/** In Jupyter (anywidget): the kernel is asked for the tokens of a problem whose task the page does not know. */
export function render({ model, el }) {
  const waiting = new Map(),
    view = Math.random().toString(36).slice(2);
  const receive = (reply) => {
    waiting.get(reply.id)?.(reply);
    waiting.delete(reply.id);
  };
  model.on("msg:custom", receive);
  mount(el, model.get("start"), {
    encode(problem, reply) {
      const id = `${view}-${waiting.size}-${problem}`;
      waiting.set(id, reply);
      model.send({ id, problem });
    },
  });
  return () => model.off("msg:custom", receive);
}

/** The part of the page's address that belongs to the view of this number: "#x0=...&x1=...". */
function fragment(at) {
  const parts = () =>
      location.hash
        .slice(1)
        .split("&")
        .filter((part) => /^x\d+=/.test(part)),
    mine = `x${at}=`;
  let before = null;
  return {
    linked: decodeURIComponent(
      parts()
        .find((part) => part.startsWith(mine))
        ?.slice(mine.length) ?? "",
    ),
    link(text) {
      if (before === null) {
        before = text;
        return;
      } // the first drawing changes nothing
      const all = [
        ...parts().filter((part) => !part.startsWith(mine)),
        ...(text ? [mine + encodeURIComponent(text)] : []),
      ];
      history.replaceState(null, "", all.length ? `#${all.join("&")}` : location.pathname + location.search);
    },
  };
}

/** Builds every view that the page holds. */
export function mountAll(page) {
  page.querySelectorAll("[data-explorer]:not([data-mounted])").forEach((root, at) => {
    const start = JSON.parse(root.querySelector("script").textContent);
    root.dataset.mounted = "";
    root.explorer = mount(root, start, fragment(at));
  });
}
