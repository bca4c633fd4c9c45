// A structure as a grid of bits: rows of 32, or of 16 where the screen is narrow.

const narrow = matchMedia("(max-width: 640px)");
const rowBits = () => (narrow.matches ? 16 : 32);

/** An element with properties and children. Text is never taken for HTML. */
function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

/** Text in which backticks mean code. */
function prose(text) {
  return (text ?? "").split("`").map((piece, i) => (i % 2 ? el("code", {}, piece) : piece));
}

/** A name that may be broken at its underscores. */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((piece, i) => (i ? [el("wbr"), piece] : [piece]));
}

const hex2 = (n) => `0x${n.toString(16).padStart(2, "0")}`;

/** Where a field is: byte offset, and its bits within the dword there, or qword. */
function place(field) {
  if (field.bytes !== undefined || field.struct) return { offset: hex2(field.bit >> 3), bits: `${field.width / 8} bytes` };
  const first = field.bit % 32;
  const span = first + field.width > 32 ? 64 : 32;
  return { offset: hex2((field.bit >> 5) * 4), bits: `${span - 1 - first}:${span - first - field.width}` };
}

/** Fields in order, with what is reserved between them. */
function* spans(structure) {
  let bit = 0;
  for (const field of [...structure.fields].sort((a, b) => a.bit - b.bit)) {
    if (field.bit > bit) yield { bit, width: field.bit - bit };
    yield { bit: field.bit, width: field.width, field };
    bit = Math.max(bit, field.bit + field.width);
  }
  if (bit < structure.size * 8) yield { bit, width: structure.size * 8 - bit };
}

/** Pieces that lie in one row, or are whole rows. */
function* pieces(structure, width) {
  for (const span of spans(structure)) {
    const end = span.bit + span.width;
    for (let bit = span.bit; bit < end;) {
      const column = bit % width;
      const rows = column === 0 ? Math.floor((end - bit) / width) : 0;
      const bits = rows ? rows * width : Math.min(width - column, end - bit);
      yield { ...span, at: bit, bits, rows: rows || 1, column: rows ? 0 : column, isFirst: bit === span.bit };
      bit += bits;
    }
  }
}

const kindOf = (field) => field.struct ? "struct" : field.bytes !== undefined ? "bytes" : field.enum ? "enum"
  : field.width === 1 ? "flag" : "int";

/** Draws a structure. `bytes` are shown in it; `onField(field)` is told of the field looked at, and `onOpen` of a structure. */
function drawGrid(structure, bytes, onField, onOpen) {
  const width = rowBits();
  const grid = el("div", { className: "grid", role: "grid", "aria-label": `${structure.name}, ${structure.size} bytes` });
  grid.style.setProperty("--bits", width);
  grid.dataset.structure = structure.name;
  grid.append(heads(width));
  let row;
  let line = 1;
  let rowStart = -1;
  for (const piece of pieces(structure, width)) {
    const start = piece.at - piece.column;
    if (start !== rowStart) {
      line += row ? Number(row.dataset.lines) : 1;
      row = el("div", { role: "row" });
      // Long ones are not drawn to scale.
      row.dataset.lines = piece.rows > 1 && piece.column === 0 ? Math.min(piece.rows, piece.field ? (width === 16 ? 2 : 3) : 1) : 1;
      row.append(rowHead(start, width, line, row.dataset.lines));
      grid.append(row);
      rowStart = start;
    }
    row.append(cell(piece, bytes, line, Number(row.dataset.lines)));
  }
  listen(grid, structure, onField, onOpen);
  return grid;
}

/** The numbers of the bits. */
function heads(width) {
  const row = el("div", { role: "row", className: "bits" }, el("span", { role: "columnheader", "aria-label": "offset" }));
  for (let bit = width - 1; bit >= 0; bit--) {
    const label = width === 16 ? [`${bit + 16}`, el("br"), `${bit}`] : [`${bit}`];
    row.append(el("span", { role: "columnheader", className: bit % 8 === 7 ? "byte" : "" }, ...label));
  }
  return row;
}

function rowHead(bit, width, line, lines) {
  const head = el("span", { role: "rowheader", className: "offset" }, hex2((bit >> 5) * 4));
  if (width === 16) head.append(el("small", {}, bit % 32 ? "15:0" : "31:16"));
  head.style.gridArea = `${line} / 1 / span ${lines} / auto`;
  return head;
}

function cell(piece, bytes, line, lines) {
  const { field } = piece;
  const box = el("div", { role: "gridcell", tabIndex: -1, className: field ? kindOf(field) : "reserved" });
  box.style.gridArea = `${line} / ${piece.column + 2} / span ${lines} / span ${piece.rows > 1 ? rowBits() : piece.bits}`;
  if (piece.bits === 1) box.classList.add("thin");
  if (!field) {
    const set = bytes && bitsOf({ bit: piece.at, width: piece.bits }, bytes);
    const size = piece.bits % 8 || piece.bits < 32 ? `${piece.bits} bits` : `${piece.bits / 8} bytes`;
    box.setAttribute("aria-label", `reserved, ${size}${set ? ", and not zero" : ""}`);
    if (set) box.classList.add("odd");
    if (piece.bits >= 32) box.append(size);
    return box;
  }
  box.dataset.field = field.name;
  const { offset, bits } = place(field);
  const value = bytes && valueText(field, bytes);
  box.setAttribute("aria-label", `${field.name}, ${offset}, bits ${bits}${value ? `, ${value}` : ""}`);
  if (!piece.isFirst) box.append(el("span", { className: "name" }, "…"));
  else {
    box.append(el("span", { className: "name" }, ...breakable(field.name)));
    if (bytes) {
      box.append(el("span", { className: "value" }, shortValue(field, bytes)));
      if (bitsOf(field, bytes)) box.classList.add("set");
    }
  }
  return box;
}

/** As much of a value as a cell holds. */
function shortValue(field, bytes) {
  const text = valueText(field, bytes);
  if (field.enum && field.width < 6) return `${bitsOf(field, bytes)}`;
  if (text.length > 40) return `${text.slice(0, 36)}…`;
  return field.enum ? text.replace(/ \(.*/, "") : text.replace(/ \(\d+\)$/, "");
}

/** Pointer, touch and keys. One cell at a time is in the order of Tab. */
function listen(grid, structure, onField, onOpen) {
  const cells = [...grid.querySelectorAll("[role=gridcell]")];
  if (cells.length) cells[0].tabIndex = 0;
  const fieldAt = (target) => {
    const name = target.closest?.("[data-field]")?.dataset.field;
    return structure.fields.find((field) => field.name === name);
  };
  grid.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "touch" && fieldAt(event.target)) onField(fieldAt(event.target), grid);
  });
  grid.addEventListener("focusin", (event) => {
    cells.forEach((one) => { one.tabIndex = one === event.target ? 0 : -1; });
    onField(fieldAt(event.target), grid);
  });
  grid.addEventListener("click", (event) => onField(fieldAt(event.target), grid));
  grid.addEventListener("dblclick", (event) => open(fieldAt(event.target)));
  const open = (field) => { if (field?.struct) onOpen(field.struct); };
  grid.addEventListener("keydown", (event) => {
    const here = cells.indexOf(event.target);
    if (here < 0) return;
    if (event.key === "Enter") return open(fieldAt(event.target));
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: cells.length - 1 }[event.key]
      ?? { ArrowDown: beyond(cells, here, 1), ArrowUp: beyond(cells, here, -1) }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    cells[Math.max(0, Math.min(next, cells.length - 1))].focus();
  });
}

/** The cell above or below: the nearest one that lies over or under the middle of this one. */
function beyond(cells, here, step) {
  const box = cells[here].getBoundingClientRect();
  const middle = (box.left + box.right) / 2;
  for (let i = here + step; i >= 0 && i < cells.length; i += step) {
    const other = cells[i].getBoundingClientRect();
    const isPast = step > 0 ? other.top >= box.bottom - 1 : other.bottom <= box.top + 1;
    if (isPast && other.left <= middle && middle <= other.right) return i;
  }
  return here;
}

/** Turns the names that are too wide for their cells. */
function fitNames(root) {
  for (const box of root.querySelectorAll("[data-field]")) {
    const name = box.firstElementChild;
    box.classList.remove("turned");
    if (name && name.scrollWidth > box.clientWidth - 2) box.classList.add("turned");
  }
}
