"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const graph = document.getElementById("graph");
const arrows = document.getElementById("arrows");
const SVG = "http://www.w3.org/2000/svg";
const total = data.boxes.filter(box => box.parent === null).reduce((sum, box) => sum + box.operations, 0);

const made = (tag, name, text) => {
  const element = document.createElement(tag);
  element.className = name;
  if (text) element.textContent = text;
  return element;
};
const amount = number => {
  const units = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]];
  const [unit, name] = units.find(([unit]) => number >= unit) || [1, ""];
  return (number / unit).toLocaleString("en", { maximumSignificantDigits: 3 }) + name;
};

// Boxes, with what lies in them made when they are first opened.
const boxes = data.boxes.map((box, index) => ({ ...box, index, children: [], depth: 0, isOpen: false }));
boxes.forEach(box => {
  if (box.parent === null) return;
  box.depth = boxes[box.parent].depth + 1;
  boxes[box.parent].children.push(box);
});

function build(box) {
  box.element = made("div", `box ${box.kind}`);
  box.row = made(box.children.length ? "button" : "div", "row");
  box.row.append(made("span", "name", box.name), made("span", "equation", box.equation));
  if (box.parameters) box.row.append(made("span", "amount", `${amount(box.parameters)} parameters`));
  if (box.operations) {
    const share = total ? ` (${(100 * box.operations / total).toLocaleString("en", { maximumSignificantDigits: 2 })}%)` : "";
    box.row.append(made("span", "amount", `${amount(box.operations)} FLOPs${share}`));
  }
  box.element.append(box.row);
  if (box.children.length) {
    box.row.type = "button";
    box.row.setAttribute("aria-expanded", "false");
    box.row.addEventListener("click", () => { set(box, !box.isOpen); draw(); });
  }
  const near = is => () => mark(box, is);
  box.row.addEventListener("mouseenter", near(true));
  box.row.addEventListener("mouseleave", near(false));
  box.row.addEventListener("focus", near(true));
  box.row.addEventListener("blur", near(false));
  return box.element;
}

function set(box, isOpen) {
  if (!box.children.length || box.isOpen === isOpen) return;
  box.isOpen = isOpen;
  if (isOpen && !box.inside) {
    box.inside = made("div", "inside");
    box.inside.append(...box.children.map(build));
    box.element.append(box.inside);
  }
  box.inside.hidden = !isOpen;
  box.element.classList.toggle("is-open", isOpen);
  box.row.setAttribute("aria-expanded", String(isOpen));
}

// The box that is seen in place of one that lies in a closed one.
function seen(box) {
  let shown = box;
  for (let at = box; at.parent !== null; at = boxes[at.parent]) if (!boxes[at.parent].isOpen) shown = boxes[at.parent];
  return shown;
}

let lines = [];
function draw() {
  const found = new Map();
  for (const arrow of data.arrows) {
    const [from, to] = [seen(boxes[arrow.from]), seen(boxes[arrow.to])];
    if (from === to) continue;
    const key = `${from.index} ${to.index}`;
    if (!found.has(key)) found.set(key, { from, to, labels: new Set() });
    found.get(key).labels.add(arrow.label);
  }
  const ground = graph.getBoundingClientRect();
  const place = box => {
    const { left, top, right, bottom } = box.row.parentElement.getBoundingClientRect();
    const row = box.row.getBoundingClientRect();
    return { left: left - ground.left, right: right - ground.left, top: top - ground.top, bottom: bottom - ground.top, middle: (row.top + row.bottom) / 2 - ground.top };
  };
  arrows.replaceChildren();
  const marker = document.createElementNS(SVG, "marker");
  for (const [name, value] of [["id", "head"], ["viewBox", "0 0 8 8"], ["refX", 7], ["refY", 4], ["markerWidth", 7], ["markerHeight", 7], ["orient", "auto"]]) marker.setAttribute(name, value);
  const head = document.createElementNS(SVG, "path");
  head.setAttribute("d", "M0 0 8 4 0 8z");
  marker.append(head);
  arrows.append(marker);
  lines = [];
  for (const { from, to, labels } of found.values()) {
    const [a, b] = [place(from), place(to)];
    const line = document.createElementNS(SVG, "path");
    const text = document.createElementNS(SVG, "text");
    text.textContent = [...labels].join(", ");
    const isNext = from.element.nextElementSibling === to.element;
    if (isNext) {
      const x = a.left + 40;
      line.setAttribute("d", `M${x} ${a.bottom}V${b.top - 1}`);
      text.setAttribute("x", x + 8);
      text.setAttribute("y", (a.bottom + b.top) / 2 + 4);
    } else {
      const x = Math.max(Math.min(a.left, b.left) - 10 - Math.min(34, Math.abs(b.middle - a.middle) / 25), -40);
      line.setAttribute("d", `M${a.left} ${a.middle}C${x} ${a.middle} ${x} ${b.middle} ${b.left - 1} ${b.middle}`);
      text.setAttribute("x", Math.max(x, 0));
      text.setAttribute("y", (a.middle + b.middle) / 2 + 4);
      line.classList.add("far");
      text.classList.add("far");
    }
    line.setAttribute("marker-end", "url(#head)");
    arrows.append(line, text);
    lines.push({ from, to, line, text });
  }
}

function mark(box, is) {
  for (const { from, to, line, text } of lines) {
    if (from !== box && to !== box) continue;
    line.classList.toggle("near-hover", is);
    text.classList.toggle("near-hover", is);
  }
}

function openTo(depth) {
  // From outside in, as what lies in a box is made when it opens.
  // What holds operations alone stays closed, unless everything is to open.
  const holdsModules = box => box.children.some(child => child.kind === "module");
  for (const box of boxes) if (box.element) set(box, box.depth < depth && (depth > 9 || holdsModules(box)));
  draw();
}

graph.prepend(...boxes.filter(box => box.parent === null).map(build));
for (const button of document.querySelectorAll("[data-depth]")) button.addEventListener("click", () => openTo(Number(button.dataset.depth)));
addEventListener("resize", draw);
openTo(1);
