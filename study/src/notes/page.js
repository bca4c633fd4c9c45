// The page around the grids: what is shown, search, keys, colours.

const $ = (id) => document.getElementById(id);
const NOTES = new Map(DATA.notes.map((note) => [note.id, note]));
const NOTE_OF = new Map(DATA.notes.flatMap((note) => note.structures.map((name) => [name, note])));
const COMMAND_OF = new Map(DATA.commands.flatMap((c) => [[c[2], c], [c[3], c]]));
const ENUM_USERS = new Map();
for (const s of DATA.structures) {
  for (const f of s.fields) if (f.enum) ENUM_USERS.set(f.enum, [...(ENUM_USERS.get(f.enum) ?? []), [s, f]]);
}

/** What was pasted, and how it is read. */
const pasted = { bytes: new Uint8Array(), reading: undefined };

const link = (hash, ...text) => el("a", { href: `#${hash}` }, ...text);

// ---- The list of structures.

function fillNav() {
  const list = (title, items, open) => {
    const box = el("details", { open }, el("summary", {}, title), el("ul", {}, ...items));
    $("nav").append(box);
  };
  const noted = DATA.notes.map((note) => {
    const inner = note.structures.map((name) => el("li", {}, link(name, name)));
    return el("li", {}, link(`note/${note.id}`, note.title), inner.length ? el("ul", {}, ...inner) : undefined);
  });
  list("Notes, in reading order", noted, true);
  const others = DATA.structures.filter((s) => !NOTE_OF.has(s.name) && !COMMAND_OF.has(s.name));
  list("Other structures", others.map((s) => el("li", {}, link(s.name, s.name))), false);
  list("Commands", DATA.commands.map(([name, , input, output]) =>
    el("li", {}, link(input, name), " · ", link(output, "out"))), false);
  list("Enumerations", Object.keys(DATA.enums).map((name) => el("li", {}, link(`enum/${name}`, name))), false);
}

function markNav() {
  for (const a of $("nav").querySelectorAll("a")) {
    const isHere = a.hash === location.hash.replace(/(#[A-Z]\w*)\/.*/, "$1");
    if (isHere) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
    if (isHere) a.closest("details").open = true;
  }
}

// ---- What the address says is shown.

function route() {
  const [first, ...more] = decodeURIComponent(location.hash.slice(1)).split("/");
  const rest = more.join("/");
  closeMenu();
  showDetail();
  scrollTo(0, 0);
  if (STRUCTURES.has(first)) showStructure(STRUCTURES.get(first), rest);
  else if (first === "note" && NOTES.has(rest)) showNote(NOTES.get(rest));
  else if (first === "enum" && DATA.enums[rest]) showEnum(rest);
  else if (first === "hex") {
    if (toHex(pasted.bytes) !== more[0]) {
      $("hex").value = more[0].replace(/(.{8})(?=.)/g, "$1 ");
      $("as").value = more[1] && [...$("as").options].some((o) => o.value === more[1]) ? more[1] : "auto";
      takeHex();
    }
    showReading();
  } else showHome();
  markNav();
}

function show(title, view, note) {
  document.title = title ? `${title} · mlx5 structures` : "mlx5 structures";
  $("view").replaceChildren(...view);
  $("note").replaceChildren(...(note ? [noteBody(note)] : []));
  document.body.classList.toggle("noted", Boolean(note));
  fitNames($("view"));
}

function noteBody(note) {
  const body = el("article", { className: "prose" });
  // Made from the project's own Markdown, as the data of this page.
  body.innerHTML = note.html;
  return body;
}

function showHome() {
  const body = el("article", { className: "prose" });
  body.innerHTML = DATA.index;
  show("", [body]);
}

function showNote(note) {
  const drawn = note.structures.map((name) => section(STRUCTURES.get(name), valuesOf(name)));
  show(note.title, note.structures.length ? drawn : [noteBody(note)], note.structures.length ? note : undefined);
}

function showStructure(structure, fieldName) {
  const values = valuesOf(structure.name);
  const view = [section(structure, values, "h1")];
  if (!values && pasted.bytes.length >= structure.size) {
    const readIt = el("button", { onclick: () => { $("as").value = structure.name; readPasted(); location.hash = hashOfHex(); } },
      "Show the pasted bytes in it");
    view.push(el("p", {}, readIt));
  }
  view.push(fieldTable(structure, values));
  const users = DATA.structures.filter((s) => s.fields.some((f) => f.struct === structure.name));
  if (users.length) view.push(el("p", { className: "users" }, "Part of ", ...users.flatMap((s, i) => [i ? ", " : "", link(s.name, s.name)]), "."));
  show(structure.name, view, NOTE_OF.get(structure.name));
  const field = structure.fields.find((f) => f.name === fieldName);
  if (field) {
    const cellOf = $("view").querySelector(`[data-field="${field.name}"]`);
    cellOf.focus();
    cellOf.scrollIntoView({ block: "center" });
    showDetail(structure, field, values, cellOf.closest(".grid"));
  }
}

/** Title, sentence and grid of a structure. */
function section(structure, bytes, level = "h2", title = "") {
  const command = COMMAND_OF.get(structure.name);
  const heading = el(level, {}, link(structure.name, title || structure.name));
  const facts = [el("code", {}, structure.prm), ` · ${structure.size} bytes`];
  if (title && !title.endsWith(structure.name)) facts.unshift(el("code", {}, structure.name), " · ");
  if (command) facts.push(` · command ${command[0]}, opcode 0x${command[1].toString(16)}`);
  const box = el("section", { className: "structure" }, heading, el("p", { className: "facts" }, ...facts));
  if (structure.doc) box.append(el("p", {}, ...prose(structure.doc)));
  box.append(drawGrid(structure, bytes, (field, grid) => showDetail(structure, field, bytes, grid), (name) => { location.hash = name; }));
  return box;
}

function fieldTable(structure, bytes) {
  const rows = [...structure.fields].sort((a, b) => a.bit - b.bit).map((field) => {
    const { offset, bits } = place(field);
    const what = [...(field.struct ? [link(field.struct, field.struct), ". "] : []), ...prose(field.doc)];
    if (field.enum) what.push(" ", link(`enum/${field.enum}`, field.enum));
    return el("tr", {}, el("td", {}, offset), el("td", {}, bits),
      el("th", { scope: "row" }, link(`${structure.name}/${field.name}`, ...breakable(field.name))),
      bytes ? el("td", { className: "value" }, valueText(field, bytes)) : undefined, el("td", {}, ...what));
  });
  const heads = ["Offset", "Bits", "Field", ...(bytes ? ["Value"] : []), "What"];
  return el("table", { className: "fields" }, el("caption", {}, "Fields"),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, ...rows));
}

function showEnum(name) {
  const { table, doc, values } = DATA.enums[name];
  const users = ENUM_USERS.get(name) ?? [];
  show(name, [el("h1", {}, name), el("p", { className: "facts" }, el("code", {}, table)), el("p", {}, ...prose(doc)),
    valueTable(values),
    el("p", { className: "users" }, "Values of ", ...users.flatMap(([s, f], i) => [i ? ", " : "", link(`${s.name}/${f.name}`, `${s.name}.${f.name}`)]), ".")]);
}

function valueTable(values, current) {
  const rows = values.map(([name, bits, doc]) => el("tr", { className: current === BigInt(bits) ? "current" : "" },
    el("td", {}, `0x${BigInt(bits).toString(16)}`), el("th", { scope: "row" }, ...breakable(name)), el("td", {}, ...prose(doc))));
  return el("table", { className: "values" }, el("tbody", {}, ...rows));
}

// ---- The field looked at.

function showDetail(structure, field, bytes, grid) {
  for (const box of document.querySelectorAll(".looked")) box.classList.remove("looked");
  $("detail").replaceChildren();
  if (!field) return;
  for (const box of grid.querySelectorAll(`[data-field="${field.name}"]`)) box.classList.add("looked");
  const { offset, bits } = place(field);
  const width = field.width === 1 ? "1 bit" : field.width % 8 ? `${field.width} bits` : `${field.width / 8} byte${field.width > 8 ? "s" : ""}`;
  const at = bits.includes("bytes") ? `from byte ${offset}` : `bits ${bits} of the ${bits.startsWith("63") || Number(bits.split(":")[0]) > 31 ? "qword" : "dword"} at ${offset}`;
  const parts = [el("h3", {}, link(`${structure.name}/${field.name}`, ...breakable(field.name))),
    el("p", { className: "facts" }, `${width}, ${at}`)];
  if (bytes) parts.push(el("p", { className: "value" }, valueText(field, bytes)));
  if (field.struct) parts.push(el("p", {}, "A structure: ", link(field.struct, field.struct), "."));
  if (field.doc) parts.push(el("p", {}, ...prose(field.doc)));
  if (field.enum) {
    const { values } = DATA.enums[field.enum];
    parts.push(el("div", { className: "scroll" }, valueTable(values, bytes && bitsOf(field, bytes))));
  }
  const source = ["PRM ", el("code", {}, `${structure.prm}.${field.name}`)];
  if (field.from) source.push(`; declared or used in ${field.from}`);
  parts.push(el("p", { className: "source" }, ...source, "."));
  $("detail").append(...parts);
}

// ---- Pasted bytes.

function fillForms() {
  $("as").append(el("option", { value: "auto" }, "what it looks like"));
  for (const [value, [label]] of FORMS) $("as").append(el("option", { value }, label));
  const group = el("optgroup", { label: "one structure" });
  group.append(...DATA.structures.map((s) => el("option", { value: s.name }, s.name)));
  $("as").append(group);
}

function takeHex() {
  pasted.bytes = parseHex($("hex").value);
  readPasted();
}

function readPasted() {
  const { bytes } = pasted;
  const as = $("as").value;
  const best = bytes.length ? likely(bytes) : [];
  pasted.best = best;
  if (!bytes.length) pasted.reading = undefined;
  else if (as === "auto") pasted.reading = best[0]?.reading ?? { parts: [part("bytes", null, 0, bytes)] };
  else pasted.reading = FORMS.has(as) ? FORMS.get(as)[1](bytes) : single(as, bytes);
  verdict(as);
}

function verdict(as) {
  const { bytes, best, reading } = pasted;
  const box = $("verdict");
  box.replaceChildren();
  if (!bytes.length) {
    if ($("hex").value.trim()) box.append("No hex is found in this.");
    return;
  }
  const choose = (one) => el("button", { type: "button", onclick: () => { $("as").value = one.form; readPasted(); location.hash = hashOfHex(); } }, one.label);
  box.append(`${bytes.length} bytes. `);
  if (as === "auto") {
    if (best.length) box.append("Likely ", el("strong", {}, best[0].label));
    else box.append("They fit no structure as a whole. ");
    const others = best.slice(1, 4);
    if (others.length) box.append("; less likely ", ...others.flatMap((one, i) => [i ? ", " : "", choose(one)]));
    if (best.length) box.append(". ");
  }
  if (reading?.fault) box.append(el("strong", { className: "fault" }, `Not as a whole: ${reading.fault}.`));
}

const hashOfHex = () => {
  const as = $("as").value;
  return `hex/${toHex(pasted.bytes)}${as === "auto" ? "" : `/${as}`}`;
};

function showReading() {
  const { reading } = pasted;
  if (!reading) return showHome();
  const { parts } = reading;
  const view = parts.map((p) => {
    const title = `${hex2(p.at)} ${p.title || p.name}`;
    if (p.name) return section(STRUCTURES.get(p.name), p.bytes, "h2", title);
    return el("section", { className: "structure" }, el("h2", {}, title),
      el("p", { className: "facts" }, `${p.bytes.length} bytes`), el("pre", {}, (toHex(p.bytes).match(/.{1,32}/g) ?? []).join("\n")));
  });
  const rest = reading.rest ?? [];
  if (rest.length) view.push(el("p", { className: "facts" }, `${rest.length} bytes more, which are not part of it.`));
  const first = parts.find((p) => p.name);
  show("Bytes", view, first && NOTE_OF.get(first.name));
}

/** A structure's bytes in what was pasted. */
const valuesOf = (name) => pasted.reading?.parts.find((p) => p.name === name)?.bytes;

// ---- Search.

const INDEX = buildIndex();

function buildIndex() {
  const items = [];
  const add = (hash, label, kind, text) => items.push({ hash, label, kind, text: `${label} ${text}`.toLowerCase() });
  for (const note of DATA.notes) add(`note/${note.id}`, note.title, "note", note.id);
  for (const [name, code, input] of DATA.commands) add(input, name, `command 0x${code.toString(16)}`, "");
  for (const s of DATA.structures) {
    add(s.name, s.name, "structure", `${s.prm} ${s.doc}`);
    for (const f of s.fields) add(`${s.name}/${f.name}`, `${s.name}.${f.name}`, "field", `${s.prm}.${f.name} ${f.doc ?? ""}`);
  }
  for (const [name, { table, values }] of Object.entries(DATA.enums)) {
    add(`enum/${name}`, name, "enumeration", table);
    for (const [value, bits, doc] of values) add(`enum/${name}`, `${value} = 0x${BigInt(bits).toString(16)}`, name, `${name} ${doc}`);
  }
  return items;
}

/** Best first: a name that is it, one that begins so, one that has it, then meanings. All words must be there. */
function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = ({ label, text }) => {
    const name = label.toLowerCase();
    const last = name.split(/[.\s]/)[name.includes(".") ? 1 : 0];
    const [word] = words;
    if (name === word || last === word) return 0;
    if (name.startsWith(word) || last.startsWith(word)) return 1;
    return name.includes(word) ? 2 : 3 + text.length / 1e4;
  };
  return INDEX.filter(({ text }) => words.every((word) => text.includes(word)))
    .map((item) => [rank(item), item]).sort((a, b) => a[0] - b[0]).slice(0, 40).map(([, item]) => item);
}

function showHits() {
  const query = $("search").value.trim();
  const found = query ? search(query) : [];
  const options = found.map((item, i) => el("li", { role: "option", id: `hit${i}`, "aria-selected": "false" },
    link(item.hash, el("span", {}, item.label), el("small", {}, item.kind))));
  for (const option of options) option.firstChild.tabIndex = -1;
  if (query && !found.length) options.push(el("li", { className: "none" }, "Nothing has all of these words."));
  $("hits").replaceChildren(...options);
  $("hits").hidden = !query;
  $("search").setAttribute("aria-expanded", String(Boolean(query)));
  select(found.length ? 0 : -1);
}

function select(n) {
  const options = [...$("hits").querySelectorAll("[role=option]")];
  options.forEach((option, i) => option.setAttribute("aria-selected", String(i === n)));
  if (options[n]) {
    $("search").setAttribute("aria-activedescendant", options[n].id);
    options[n].scrollIntoView({ block: "nearest" });
  } else $("search").removeAttribute("aria-activedescendant");
}

function closeHits() {
  $("hits").hidden = true;
  $("search").setAttribute("aria-expanded", "false");
  $("search").removeAttribute("aria-activedescendant");
}

function searchKey(event) {
  const options = [...$("hits").querySelectorAll("[role=option]")];
  const here = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    select(Math.max(0, Math.min(here + (event.key === "ArrowDown" ? 1 : -1), options.length - 1)));
  } else if (event.key === "Enter" && options[here]) {
    event.preventDefault();
    go(options[here].firstChild.hash);
  }
}

/** To a place found; its heading or field gets the focus. */
function go(hash) {
  closeHits();
  $("search").value = "";
  if (location.hash === hash) route();
  else location.hash = hash;
  if (!$("view").contains(document.activeElement)) $("main").focus();
}

// ---- Colours, keys, and the list on a narrow screen.

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme[0].toUpperCase() + theme.slice(1);
  $("theme").setAttribute("aria-label", `Colours: ${theme}`);
  // Not every place where a file is opened keeps something for it.
  try { localStorage.setItem("theme", theme); } catch { /* then it is for this time */ }
}

function savedTheme() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function closeMenu() {
  document.body.classList.remove("menu");
  $("menu").setAttribute("aria-expanded", "false");
}

function escape() {
  if (!$("hits").hidden || $("search").value) {
    $("search").value = "";
    closeHits();
    $("search").blur();
  } else if (document.body.classList.contains("menu")) {
    closeMenu();
    $("menu").focus();
  } else {
    document.activeElement?.blur();
    showDetail();
  }
}

function start() {
  fillNav();
  fillForms();
  setTheme(THEMES.includes(savedTheme()) ? savedTheme() : "auto");
  $("theme").onclick = () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
  $("menu").onclick = () => $("menu").setAttribute("aria-expanded", String(document.body.classList.toggle("menu")));
  $("search").addEventListener("input", showHits);
  $("search").addEventListener("focus", showHits);
  $("search").addEventListener("keydown", searchKey);
  $("hits").addEventListener("click", (event) => {
    const a = event.target.closest("a");
    if (a) { event.preventDefault(); go(a.hash); }
  });
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest(".find")) closeHits(); });
  const changed = () => {
    if (!pasted.bytes.length) return verdict($("as").value);
    const hash = hashOfHex();
    if (location.hash === `#${hash}`) return route();
    history.replaceState(null, "", `#${hash}`);
    return route();
  };
  $("hex").addEventListener("input", () => { takeHex(); changed(); });
  $("as").addEventListener("change", () => { readPasted(); changed(); });
  $("paste").addEventListener("reset", () => setTimeout(() => { takeHex(); route(); }));
  $("paste").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input, textarea, select");
    if (event.key === "Escape") escape();
    else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      $("search").focus();
    }
  });
  narrow.addEventListener("change", route);
  let frame;
  addEventListener("resize", () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(() => fitNames($("view"))); });
  addEventListener("hashchange", route);
  route();
}

start();
