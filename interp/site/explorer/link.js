// What comes from outside: the page's address, read field by field; and markup, put into the page without scripts.

import { components } from "./parts.js";

const CHOICES = { click: ["remove", "patch", "here"], method: ["zero", "mean"], against: ["runner-up", "mean"] },
  LONGEST = 4096;

const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x),
  isText = (x) => typeof x === "string" && x.length <= LONGEST && /^[\x20-\x7e]*$/.test(x),
  isCount = (x, below) => Number.isInteger(x) && x >= 0 && x < below;

/** The changes that an address asks for: what it says in a form that the page knows, and nothing else of it. */
export function readLink(text, models) {
  let said;
  try {
    said = JSON.parse(text || "{}");
  } catch {
    return {}; // a link that was cut
  }
  if (!isObject(said)) return {};
  const found = {};
  for (const name of ["problem", "second", "step"]) if (isText(said[name])) found[name] = said[name];
  for (const [name, choices] of Object.entries(CHOICES)) if (choices.includes(said[name])) found[name] = said[name];
  if (typeof said.log === "boolean") found.log = said.log;
  if (Array.isArray(said.edits) && said.edits.length === models.length)
    found.edits = said.edits.map((edits, i) => readEdits(edits, models[i]));
  if (isObject(said.forced)) {
    const most = Math.max(...models.map(({ vocabulary }) => vocabulary.length));
    found.forced = Object.fromEntries(
      Object.entries(said.forced).filter(([key, token]) => isText(key) && isCount(token, most)),
    );
  }
  if (
    Array.isArray(said.snapshot) &&
    said.snapshot.length === models.length &&
    said.snapshot.every((at, i) => isCount(at, models[i].steps.length))
  )
    found.snapshot = said.snapshot;
  return found;
}

/** {component: {scale, patch}} of components that the model has, with numbers that are numbers. */
function readEdits(edits, { cfg }) {
  if (!isObject(edits)) return {};
  const known = new Set(components(cfg).flatMap(([, names]) => names)),
    found = {};
  for (const [name, edit] of Object.entries(edits)) {
    if (!known.has(name) || !isObject(edit)) continue;
    const { scale = 1, patch = false } = edit;
    if (typeof scale !== "number" || !(Math.abs(scale) <= 100)) continue;
    const positions = Array.isArray(patch) && patch.every((at) => isCount(at, cfg.n_ctx));
    found[name] = { scale, patch: positions ? patch : patch === true };
  }
  return found;
}

const NEVER = "script, iframe, object, embed, link, meta, base, style, form[action], animate, set";

/** Puts markup into an element. It is parsed apart from the page, and what could run or load something is left out. */
export function put(element, markup) {
  const parsed = new DOMParser().parseFromString(markup, "text/html").body;
  for (const part of parsed.querySelectorAll(NEVER)) part.remove();
  for (const part of parsed.querySelectorAll("*"))
    for (const { name, value } of [...part.attributes])
      if (/^on/i.test(name) || (/(^|:)(href|src|srcset|action|formaction)$/i.test(name) && !value.startsWith("#")))
        part.removeAttribute(name);
  element.replaceChildren(...parsed.childNodes);
}
