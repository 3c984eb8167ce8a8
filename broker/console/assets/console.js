// The script of the console. Every page works without it: it adds live updates, figures under the
// pointer, keys and the choice between light and dark.
"use strict";

const root = document.documentElement;

// -- light and dark ------------------------------------------------------------------------------

const THEME = "quorate-theme";

function isDark() {
  if (root.dataset.theme) return root.dataset.theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function changeTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem(THEME, root.dataset.theme);
  } catch {
    // A browser that keeps nothing forgets the choice with the page.
  }
}

try {
  const kept = localStorage.getItem(THEME);
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
} catch {
  // As above.
}
document.getElementById("theme")?.addEventListener("click", changeTheme);

// -- live updates --------------------------------------------------------------------------------

const live = document.getElementById("live");
let stream = null;

function show(state, words) {
  if (!live) return;
  live.className = `live ${state}`;
  live.lastElementChild.textContent = words;
}

// A section is left alone while somebody works in it: a form, a selection, something unfolded.
function isInUse(section) {
  const selection = getSelection();
  return (
    section.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
  ) || section.querySelector("details[open]") !== null || (
    selection !== null && !selection.isCollapsed && section.contains(selection.anchorNode)
  );
}

// The broker escaped whatever it put into the markup; see the policy of the page, too.
function put(name, html) {
  const section = document.getElementById(`section-${name}`);
  if (!section || isInUse(section)) return;
  const focused = document.activeElement;
  const place = section.contains(focused) ? [...section.querySelectorAll("a")].indexOf(focused) : -1;
  section.innerHTML = html;
  if (place >= 0) section.querySelectorAll("a")[place]?.focus({ preventScroll: true });
}

function follow() {
  const events = document.body.dataset.events;
  if (!events || stream || document.hidden) return;
  stream = new EventSource(events);
  stream.addEventListener("open", () => show("on", "live"));
  stream.addEventListener("error", () => show("lost", "not live"));
  stream.addEventListener("section", (event) => {
    const { name, html } = JSON.parse(event.data);
    put(name, html);
  });
}

function rest() {
  stream?.close();
  stream = null;
  show("", "paused");
}

document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
addEventListener("pagehide", rest);
follow();

// -- figures under the pointer -------------------------------------------------------------------

const SIZES = ["B", "kB", "MB", "GB", "TB"];

function inDigits(value) {
  return Number(value.toPrecision(3)).toString();
}

function scaled(value, step, units) {
  let at = 0;
  while (Math.abs(value) >= step && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return `${inDigits(value)} ${units[at]}`.trim();
}

const SHOWN = {
  rate: (value) => `${scaled(value, 1000, SIZES)}/s`,
  count: (value) => scaled(value, 1000, ["", "k", "M", "G"]),
  ms: (value) => (value < 1000 ? `${inDigits(value)} ms` : `${inDigits(value / 1000)} s`),
  percent: (value) => `${Math.round(value)} %`,
};

function clearTip(plot) {
  plot.querySelectorAll(".cursor, .tip").forEach((one) => one.remove());
}

function showTip(plot, event) {
  const chart = plot.closest(".chart");
  const lines = [...plot.querySelectorAll("[data-points]")].map((path) => ({
    label: path.dataset.label,
    color: [...path.classList].find((name) => /^s\d$/.test(name)),
    points: path.dataset.points.split(","),
  }));
  clearTip(plot);
  const count = Math.max(0, ...lines.map((line) => line.points.length));
  if (!count) return;
  const box = plot.getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const back = count - 1 - Math.round(share * (count - 1));
  const at = new Date(Number(chart.dataset.last) - back * Number(chart.dataset.step));
  const tip = document.createElement("div");
  tip.className = "tip";
  const time = document.createElement("div");
  time.className = "muted";
  time.textContent = at.toLocaleTimeString();
  tip.append(time);
  for (const line of lines) {
    const value = line.points[line.points.length - 1 - back];
    if (!value) continue;
    const row = document.createElement("div");
    const dot = document.createElement("i");
    dot.className = `dot ${line.color}`;
    row.append(dot, `${line.label} ${SHOWN[chart.dataset.unit](Number(value))}`);
    tip.append(row);
  }
  const cursor = document.createElement("div");
  cursor.className = "cursor";
  plot.append(cursor, tip);
  const x = count > 1 ? ((count - 1 - back) / (count - 1)) * box.width : 0;
  cursor.style.left = `${x}px`;
  tip.style.left = `${x + tip.offsetWidth + 12 > box.width ? x - tip.offsetWidth - 8 : x + 8}px`;
}

document.addEventListener("pointermove", (event) => {
  const plot = event.target instanceof Element ? event.target.closest(".chart-plot") : null;
  document.querySelectorAll(".chart-plot").forEach((other) => other !== plot && clearTip(other));
  if (plot) showTip(plot, event);
});

// -- keys ----------------------------------------------------------------------------------------

const PLACES = {
  o: "/",
  b: "/brokers",
  t: "/topics",
  g: "/groups",
  x: "/transactions",
  c: "/configs",
  a: "/acls",
  q: "/quorum",
  m: "/metadata",
  u: "/audit",
};
let isGoing = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    if (PLACES[event.key]) location.assign(PLACES[event.key]);
    return;
  }
  if (event.key === "g") isGoing = true;
  else if (event.key === "t") changeTheme();
  else if (event.key === "[") document.querySelector('a[rel="prev"]')?.click();
  else if (event.key === "]") document.querySelector('a[rel="next"]')?.click();
  else if (event.key === "/") {
    const field = document.querySelector("[data-focus], main .query input");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});
