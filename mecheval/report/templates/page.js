"use strict";
// Charts take the page's width: where there is little, panels wrap and charts side by side stack. Letters keep their size.
const PANEL = 230, NARROW = 600; // pixels
const MOST_COLUMNS = 4; // of a table that stays one on a narrow page
const FEW = 2; // rows of a table that needs no filter

function wrap(spec, room, datasets) {
  for (const part of [...(spec.hconcat || []), ...(spec.vconcat || [])]) wrap(part, room, datasets);
  if (spec.hconcat && room < PANEL * spec.hconcat.length) {
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
    for (const part of spec.vconcat) labelRows(part, spec.vconcat[0]);
  }
  if (spec.facet && spec.facet.column && !spec.facet.row) {
    const {field} = spec.facet.column;
    const panels = new Set(datasets[spec.data.name].map(row => row[field])).size;
    const least = Math.min(PANEL, 30 + (spec.spec.width > 0 ? Math.max(spec.spec.width, 60) : PANEL));
    const columns = Math.max(1, Math.floor((room - 60) / least));
    if (panels > columns) {
      spec.facet = spec.facet.column;
      spec.columns = columns;
      if (columns === 1) spec.resolve = {...spec.resolve, axis: {x: "independent", y: "independent"}};
    }
  }
}

// beside another chart the labels of its rows would stand twice, below it they are needed
function labelRows(spec, first) {
  const y = part => (part.encoding || {}).y || {};
  const axis = [first, ...(first.layer || [])].map(part => y(part).axis).find(Boolean);
  for (const part of [spec, ...(spec.layer || [])]) {
    if (y(part).axis === null) delete part.encoding.y.axis;
    else if (y(part).axis && axis) part.encoding.y.axis = axis;
  }
}

// cells that are too narrow for an interval show the number alone, and each word of a label on its own line
function shorten(spec) {
  for (const part of [spec.spec, ...(spec.hconcat || []), ...(spec.vconcat || [])]) if (part) shorten(part);
  const isCell = layer => layer.encoding && layer.encoding.x && layer.encoding.x.type === "nominal";
  if (!spec.layer || !spec.layer.some(isCell)) return;
  for (const layer of spec.layer.filter(isCell)) {
    const axis = layer.encoding.x.axis;
    if (axis) axis.labelExpr = "split(datum.label, ' ')";
  }
  const columns = Math.max(0, ...spec.layer.map(layer => ((layer.encoding.x || {}).sort || []).length));
  const isInterval = layer => ((layer.encoding || {}).text || {}).field === "below";
  if (columns <= 3 || !spec.layer.some(isInterval)) return;
  spec.layer = spec.layer.filter(layer => !isInterval(layer));
  for (const layer of spec.layer) if (layer.mark.dy) layer.mark.dy = 0;
  spec.height = {step: 22};
}

function widen(spec, factor) {
  if (typeof spec.width === "number") spec.width = Math.max(60, spec.width * factor);
  else if (spec.width && spec.width.step) spec.width = {step: Math.max(5, spec.width.step * factor)};
  for (const part of [spec.spec, ...(spec.hconcat || []), ...(spec.vconcat || [])]) if (part) widen(part, factor);
}

const turns = new Map();

async function embed(live, text, room, factor) {
  const spec = JSON.parse(text), top = spec.data;
  for (const part of spec.vconcat || [spec]) part.data = part.data || top;
  wrap(spec, room, spec.datasets);
  widen(spec, factor);
  if (room < NARROW) {
    shorten(spec);
    spec.config.legend = {...spec.config.legend, orient: "bottom", columns: 2};
    spec.config.axis = {...spec.config.axis, labelLimit: 130};
  }
  const actions = {export: true, source: false, compiled: false, editor: false};
  await vegaEmbed(live, spec, {renderer: "svg", actions});
  return live.querySelector("svg").getBoundingClientRect().width;
}

async function draw(section) {
  const live = section.querySelector(".live"), text = section.querySelector(".spec").textContent;
  const turn = turns.set(section, (turns.get(section) || 0) + 1).get(section);
  live.hidden = false;
  const room = live.parentElement.clientWidth - (innerWidth > NARROW ? 44 : 4);
  let factor = 1, before = null, best = null;
  for (let round = 0; round < 7; round++) {
    const width = await embed(live, text, room, factor);
    if (turns.get(section) !== turn) return; // the window changed: a later call draws
    if (width <= room && (!best || width > best.width)) best = {factor, width};
    if (width <= room && width > 0.96 * room) break;
    const slope = before ? (width - before.width) / (factor - before.factor) : width / factor;
    const held = !(slope > 1); // a long title, not the panels, decides the width
    if (held && width > room) break;
    before = {factor, width};
    const step = held ? factor / 2 : (0.985 * room - width) / slope;
    factor = Math.min(Math.max(factor + step, 0.15), 4);
    if (Math.abs(factor - before.factor) < 0.01) break;
  }
  if (best && best.factor !== factor) await embed(live, text, room, best.factor);
  section.classList.add("alive");
}

function drawAll() {
  for (const section of document.querySelectorAll(".figure")) {
    draw(section).catch(error => { section.querySelector(".live").hidden = true; console.error(error); });
  }
}

let drawnAt = innerWidth, later;
addEventListener("resize", () => {
  clearTimeout(later);
  if (innerWidth !== drawnAt) later = setTimeout(() => { drawnAt = innerWidth; drawAll(); }, 200);
});

// Tables sort by a click on a heading, within each group of rows, and filter by a text.
function cellAt(row, column) {
  for (const cell of row.cells) {
    if (column < cell.colSpan) return cell.textContent.trim();
    column -= cell.colSpan;
  }
  return "";
}

function compare(a, b) {
  const [x, y] = [a, b].map(text => parseFloat(text.replace("−", "-").replaceAll(",", "")));
  if (!isNaN(x) && !isNaN(y)) return x - y;
  return isNaN(x) - isNaN(y) || a.localeCompare(b);
}

function sortBy(table, heading) {
  const headings = [...heading.parentNode.cells], column = headings.indexOf(heading);
  const down = heading.ariaSort === "ascending";
  for (const other of headings) other.ariaSort = "none";
  heading.ariaSort = down ? "descending" : "ascending";
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter(row => !row.classList.contains("group"));
    rows.sort((a, b) => (down ? -1 : 1) * compare(cellAt(a, column), cellAt(b, column)));
    body.append(...rows);
  }
}

function filterBy(table, text) {
  for (const body of table.tBodies) {
    const rows = [...body.rows], data = rows.filter(row => !row.classList.contains("group"));
    const group = rows.find(row => row.classList.contains("group"));
    const named = group ? group.textContent : "";
    for (const row of data) row.hidden = !(row.textContent + named).toLowerCase().includes(text.toLowerCase());
    if (group) group.hidden = data.every(row => row.hidden);
  }
}

for (const table of document.querySelectorAll(".wide > table")) {
  const rows = [...table.tBodies].flatMap(body => [...body.rows]).filter(row => !row.classList.contains("group"));
  if (!table.tHead || table.classList.contains("plain") || rows.length < 2) continue;
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.className = "sort";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, heading));
    heading.ariaSort = "none";
    heading.append(button);
  }
  if (rows.length <= FEW) continue;
  const box = document.createElement("input");
  box.type = "search";
  box.className = "filter";
  box.placeholder = box.ariaLabel = "Filter rows";
  box.addEventListener("input", () => filterBy(table, box.value));
  table.parentNode.before(box);
}

// On a narrow page each row of a table with many columns is a block, with the heading before each value.
for (const table of document.querySelectorAll(".wide > table")) {
  const headings = table.tHead ? [...table.tHead.rows[0].cells].map(cell => cell.textContent.trim()) : [];
  const short = headings.length <= MOST_COLUMNS && !table.classList.contains("long");
  if (short || table.classList.contains("plain")) continue;
  table.classList.add("blocks");
  for (const cell of table.querySelectorAll("tbody td")) {
    const before = [...cell.parentNode.cells].slice(0, cell.cellIndex);
    cell.dataset.heading = headings[before.reduce((sum, other) => sum + other.colSpan, 0)];
    const content = document.createElement("div");
    content.append(...cell.childNodes);
    cell.append(content);
    cell.classList.toggle("empty", content.textContent.trim() === "–");
  }
}
for (const box of document.querySelectorAll(".wide, .live")) {
  // a box that scrolls is reached by the keyboard too
  new ResizeObserver(() => { box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1; }).observe(box);
}

addEventListener("beforeprint", () => document.querySelectorAll(".fold").forEach(fold => { fold.open = true; }));
drawAll();
