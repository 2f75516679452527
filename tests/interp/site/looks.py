"""What can be measured of a page's looks: scripts that a browser evaluates, each returning a list of what is wrong."""

from __future__ import annotations

from typing import Any

#: Texts of figures that run into each other, or leave their figure. Turned ones are left out.
MEETING_TEXTS = """() => {
  const wrong = [];
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    if (!plot.checkVisibility()) continue;
    const whole = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")]
      .filter((e) => e.textContent.trim() && e.checkVisibility() && !e.closest(".hoverlayer, .modebar, [clip-path]"))
      .filter((e) => Math.abs(e.getScreenCTM().b) < 0.01)
      .map((e) => [e.textContent, e.getBoundingClientRect()]);
    texts.forEach(([said, at], i) => {
      if (at.left < whole.left - 2 || at.right > whole.right + 2) wrong.push(`${said} leaves`);
      for (const [other, there] of texts.slice(i + 1)) {
        const across = Math.min(at.right, there.right) - Math.max(at.left, there.left);
        const up = Math.min(at.bottom, there.bottom) - Math.max(at.top, there.top);
        if (across > 2 && up > 6) wrong.push(`${said} meets ${other}`);
      }
    });
  }
  return wrong;
}"""

#: Texts of a selector whose contrast (WCAG 2) with the ground that they stand on is below 4.5.
FAINT_TEXTS = """(selector) => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((x) => ((x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll(selector)]
    .filter((e) => e.checkVisibility() && [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((e) => !e.closest(":disabled, svg, .js-plotly-plot"))
    .map((e) => {
      const [low, high] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => a - b);
      return [(high + 0.05) / (low + 0.05), `${e.className} ${e.textContent.trim().slice(0, 40)}`];
    })
    .filter(([contrast]) => contrast < 4.5)
    .map(([contrast, said]) => `${contrast.toFixed(2)} ${said}`);
}"""


def wait_until(page: Any, holds: str, arg: Any = None) -> None:
    """Wait until a function of the page holds. Playwright's own waiting evaluates text, which the policy forbids."""
    for _ in range(1800):
        if page.evaluate(holds, arg):
            return
        page.wait_for_timeout(100)
    raise AssertionError(holds)
