"use strict";
// Hex in any grouping, and what it may be. Places of bits are the data's: none is written here.

const DATA = JSON.parse(document.getElementById("data").textContent);
const STRUCTURES = new Map(DATA.structures.map((s) => [s.name, s]));

/** The bytes of hex text: rows with or without offsets, bytes or words, what surrounds them in a log. */
function parseHex(text) {
  const rows = text.split(/\r?\n/).map(hexRow).filter((row) => row.words.length);
  stripOffsets(rows);
  return Uint8Array.from(rows.flatMap((row) => row.words.flatMap(wordBytes)));
}

/** The hex words at a row's end: after an offset with a colon, without the column of text. */
function hexRow(line) {
  let text = line.replace(/\|.*$/, "").replace(/([0-9a-f])\[.*$/i, "$1").replace(/\\x/g, " ");
  text = text.replace(/\b([0-9a-f]{2})(:[0-9a-f]{2})+\b/gi, (bytes) => bytes.replaceAll(":", " "));
  const colon = text.match(/^.*?(?:[0-9a-f]|\])\s*:\s+(?=[0-9a-fx\s,]*$)/i);
  if (colon) text = text.slice(colon[0].length);
  const words = [];
  for (const token of text.split(/[\s,;{}()"'<>]+/).filter(Boolean)) {
    const word = token.replace(/^0x/i, "");
    if (!/^[0-9a-f]+$/i.test(word)) words.length = 0;
    else words.push(token !== word ? word.padStart(word.length > 2 ? 8 * Math.ceil(word.length / 8) : 2, "0") : word);
  }
  return { words: words.some((word) => word.length % 2) && !colon ? words.filter((w) => w.length % 2 === 0) : words };
}

/** Takes the first word of each row away if it counts the bytes of the rows before it. */
function stripOffsets(rows) {
  const first = rows.map((row) => parseInt(row.words[0], 16));
  const size = (row) => row.words.slice(1).join("").length / 2;
  const counts = rows.every((row, i) => row.words.length > 1 && (i === 0 || first[i] - first[i - 1] === size(rows[i - 1])));
  const wide = rows.every((row) => row.words[0].length > row.words[1]?.length);
  if (counts && (rows.length > 1 || (wide && first[0] === 0))) rows.forEach((row) => row.words.shift());
}

const wordBytes = (word) => (word.padStart(word.length + (word.length % 2), "0").match(/../g) || []).map((x) => parseInt(x, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The bits of a field, as a BigInt. */
function bitsOf(field, bytes) {
  let value = 0n;
  for (let bit = field.bit; bit < field.bit + field.width; bit++) {
    value = (value << 1n) | BigInt((bytes[bit >> 3] >> (7 - (bit & 7))) & 1);
  }
  return value;
}

const fieldOf = (name, field) => STRUCTURES.get(name).fields.find((f) => f.name === field);
const read = (name, field, bytes) => Number(bitsOf(fieldOf(name, field), bytes));
const named = (field, value) => DATA.enums[field.enum].values.find(([, bits]) => BigInt(bits) === value);

/** A field's value in words: an enumeration's name, or the number. */
function valueText(field, bytes) {
  if (field.bytes !== undefined || field.struct || field.width > 64) {
    return toHex(bytes.subarray(field.bit >> 3, (field.bit + field.width) >> 3));
  }
  const value = bitsOf(field, bytes);
  const hex = `0x${value.toString(16)}`;
  if (field.enum) return `${named(field, value)?.[0] ?? "unknown"} (${hex})`;
  return value < 10n ? `${value}` : `${hex} (${value})`;
}

/** No address that a processor has: its upper bits are not all like bit 47. */
const isOdd = (address) => ![0n, 0x1ffffn].includes(address >> 47n);
const ADDRESSES = new Set(["addr", "raddr", "address", "va"]);

/** How badly bytes fit a structure: reserved bits that are set, values without a name, addresses that are none. */
function misfit(structure, bytes) {
  const covered = new Uint8Array(structure.size * 8);
  let points = 0;
  for (const field of structure.fields) {
    covered.fill(1, field.bit, field.bit + field.width);
    if (field.struct) {
      points += misfit(STRUCTURES.get(field.struct), bytes.subarray(field.bit >> 3));
    } else if (field.enum) {
      const value = bitsOf(field, bytes);
      if (named(field, value)) points -= value ? 1 : 0;
      else points += 6;
    } else if (field.width === 64 && ADDRESSES.has(field.name)) {
      points += isOdd(bitsOf(field, bytes)) ? 5 : 0;
    } else if (field.name === "lkey") {
      points += bitsOf(field, bytes) ? 0 : 2;
    }
  }
  covered.forEach((is, bit) => { if (!is && (bytes[bit >> 3] >> (7 - (bit & 7))) & 1) points += 1; });
  return points;
}

/** A part of what was pasted: a structure's bytes, or bytes alone. */
const part = (title, name, at, bytes) => ({ title, name, at, bytes });

/** A send WQE, segment by segment. `fault` says what does not fit. */
function takeApart(bytes, peer) {
  if (bytes.length < 16) return { parts: [], fault: `a WQE has 16 bytes at least, and here are ${bytes.length}` };
  const parts = [];
  let at = 0;
  const take = (name, title) => {
    const size = STRUCTURES.get(name).size;
    if (at + size > bytes.length) throw new Error(`${title} would end behind the WQE, at byte ${at + size} of ${bytes.length}`);
    const piece = part(title, name, at, bytes.subarray(at, at + size));
    parts.push(piece);
    at += size;
    return piece.bytes;
  };
  const ctrl = take("CtrlSeg", "control segment");
  const opcode = fieldOf("CtrlSeg", "opcode");
  const operation = DATA.wqe.opcodes[bitsOf(opcode, ctrl)];
  const length = 16 * read("CtrlSeg", "ds", ctrl);
  if (!operation) return { parts, fault: `no operation has opcode ${valueText(opcode, ctrl)}` };
  if (!length) return { parts, fault: "ds is 0, but counts the control segment too" };
  if (length > bytes.length) return { parts, fault: `ds says ${length} bytes, and here are ${bytes.length}` };
  const rest = bytes.subarray(length);
  bytes = bytes.subarray(0, length);
  try {
    walk(operation, peer, bytes, take, (title, size, step = size) => {
      if (at + size > bytes.length) throw new Error(`${title} would end behind the WQE, at byte ${at + size} of ${bytes.length}`);
      parts.push(part(title, null, at, bytes.subarray(at, at + size)));
      at = Math.min(at + step, bytes.length);
    }, () => at);
  } catch (error) {
    return { parts, rest, fault: error.message };
  }
  return { parts, rest };
}

/** The segments behind the control segment. */
function walk(operation, peer, bytes, take, raw, at) {
  const { heads, tail } = operation;
  if (tail === "umr") return umr(bytes, take, raw, at);
  if (tail === "none" && bytes.length > 16) throw new Error("a NOP is its control segment");
  if (tail === "other" || (tail === "raw" && peer !== "raw")) return raw("segments of the operation", bytes.length - at());
  if (tail === "none") return undefined;
  const round = (n) => Math.ceil(n / 16) * 16;
  if (peer) {
    const title = { ud: "address vector segment", xrc: "XRC segment", raw: "Ethernet segment" }[peer];
    const head = take(DATA.wqe.peers[peer], title);
    const size = peer === "raw" ? read("EthSeg", "inline_hdr_sz", head) : 0;
    const behind = size & DATA.wqe.insert_vlan ? 0 : size - DATA.wqe.header_start;
    if (behind > 0) raw("the frame's head, from its third byte on", behind, round(behind));
  }
  for (const name of heads) take(name, name === "RaddrSeg" ? "remote address segment" : "atomic segment");
  while (at() < bytes.length) {
    if (read("DataSeg", "inline", bytes.subarray(at(), at() + 16)) === 0) {
      take("DataSeg", "data segment");
      continue;
    }
    if (tail === "memory") throw new Error("data that arrive go to memory, and not into the WQE");
    const size = read("InlineSeg", "byte_count", take("InlineSeg", "inline segment"));
    raw("its data", size, round(4 + size) - 4);
  }
  return undefined;
}

/** A UMR: what changes, the key's context, the translation list. */
function umr(bytes, take, raw, at) {
  const ctrl = take("UmrCtrlSeg", "UMR control segment");
  take("Mkc", "memory key context");
  let left = read("UmrCtrlSeg", "klm_octowords", ctrl);
  if (left && !read("UmrCtrlSeg", "inline", ctrl)) {
    take("DataSeg", "data segment: where the list is");
    left = 0;
  }
  for (let repeated = 0; left > 0; left--) {
    const octoword = bytes.subarray(at(), at() + 16);
    const isBlock = octoword.length === 16 && read("KlmEntry", "mkey", octoword) === DATA.wqe.repeat;
    if (repeated) {
      repeated--;
      take("RepeatEntrySeg", "piece of a repeated block");
    } else if (isBlock) {
      repeated = read("RepeatBlockSeg", "num_entries", take("RepeatBlockSeg", "repeated block"));
    } else if (octoword.some((byte) => byte)) {
      take("KlmEntry", "translation entry");
    } else {
      raw("filling of the list", 16);
    }
  }
  if (at() < bytes.length) raw("rest", bytes.length - at());
}

/** A receive WQE: data segments up to the one that ends the list. A shared queue's begins with a next segment. */
function receive(bytes, shared) {
  const parts = [];
  let at = 0;
  if (shared && bytes.length >= 16) {
    parts.push(part("next segment", "SrqNextSeg", 0, bytes.subarray(0, 16)));
    at = 16;
  }
  for (; at + 16 <= bytes.length; at += 16) {
    const piece = bytes.subarray(at, at + 16);
    const ends = piece.every((byte, i) => byte === DATA.wqe.terminator[i]);
    parts.push(part(ends ? "end of the list" : "data segment", "DataSeg", at, piece));
    if (ends) return { parts, rest: bytes.subarray(at + 16) };
  }
  const fault = at < bytes.length ? `a data segment has 16 bytes, and ${bytes.length - at} are left` : undefined;
  return { parts, rest: bytes.subarray(at), fault };
}

/** The structure of a CQE, by its opcode. Of 128 bytes it is the second half. */
function cqe(bytes) {
  if (bytes.length < 64) return { parts: [], fault: `a CQE has 64 bytes, and here are ${bytes.length}` };
  const base = bytes.length >= 128 ? 64 : 0;
  const body = bytes.subarray(base, base + 64);
  const opcode = named(fieldOf("ErrorCqe", "opcode"), bitsOf(fieldOf("ErrorCqe", "opcode"), body))?.[0] ?? "";
  const isEthernet = read("EthernetCqe", "l3_hdr_type", body) || read("EthernetCqe", "l4_hdr_type", body);
  const name = opcode.endsWith("_ERR") && opcode !== "SIG_ERR" ? "ErrorCqe" : opcode === "REQ" ? "RequesterCqe"
    : isEthernet && !read("ResponderCqe", "rqpn", body) ? "EthernetCqe" : "ResponderCqe";
  const parts = [part({ ErrorCqe: "error CQE", RequesterCqe: "CQE of a send request", EthernetCqe: "CQE of a received frame" }[name]
    ?? "CQE of a receive request", name, base, body)];
  if (base) parts.unshift(part("room for data", null, 0, bytes.subarray(0, 64)));
  const fault = !opcode || opcode === "INVALID" ? "its opcode says that the device has not written it" : undefined;
  return { parts, rest: bytes.subarray(base + 64), fault };
}

/** An EQE and, by its type, what its data are. */
function eqe(bytes) {
  if (bytes.length < 64) return { parts: [], fault: `an EQE has 64 bytes, and here are ${bytes.length}` };
  const body = bytes.subarray(0, 64);
  const type = fieldOf("Eqe", "type_");
  const fault = named(type, bitsOf(type, body)) ? undefined : "no event has its type";
  const parts = [part("event queue entry", "Eqe", 0, body)];
  const data = fieldOf("Eqe", "event_data");
  const inner = DATA.events[bitsOf(type, body)];
  if (inner) parts.push(part("what the event tells", inner, data.bit >> 3, body.subarray(data.bit >> 3, (data.bit + data.width) >> 3)));
  return { parts, rest: bytes.subarray(64), fault };
}

/** A command's input, which begins with its opcode. */
function command(bytes) {
  const opcode = bytes[0] * 256 + bytes[1];
  const found = DATA.commands.find(([, code, input]) => code === opcode && STRUCTURES.get(input).size <= bytes.length);
  if (!found) return { parts: [], fault: "no declared command begins so and is so short" };
  return single(found[2], bytes, `input of ${found[0]}`);
}

/** One structure, at the start. */
function single(name, bytes, title = "") {
  const { size } = STRUCTURES.get(name);
  if (size > bytes.length) return { parts: [], fault: `${name} has ${size} bytes, and here are ${bytes.length}` };
  return { parts: [part(title, name, 0, bytes.subarray(0, size))], rest: bytes.subarray(size) };
}

/** The ways to read bytes that are more than one structure. */
const FORMS = new Map([
  ["send", ["send WQE, RC or UC", (b) => takeApart(b, "")]],
  ["ud", ["send WQE, UD", (b) => takeApart(b, "ud")]],
  ["xrc", ["send WQE, XRC", (b) => takeApart(b, "xrc")]],
  ["raw", ["send WQE, raw packet", (b) => takeApart(b, "raw")]],
  ["recv", ["receive WQE", (b) => receive(b, false)]],
  ["srq", ["receive WQE of a shared queue", (b) => receive(b, true)]],
  ["cqe", ["CQE", cqe]],
  ["eqe", ["EQE", eqe]],
  ["cmd", ["command input", command]],
]);

/** What bytes are likely to be, best first: `{form, label, reading, points}`. */
function likely(bytes) {
  const found = [];
  const add = (form, label, reading, handicap) => {
    if (reading.fault || !reading.parts.length) return;
    const misfits = reading.parts.filter((p) => p.name).reduce((n, p) => n + misfit(STRUCTURES.get(p.name), p.bytes), 0);
    // What is left of the last block may be old; more than a block means that it is something else.
    const extra = (reading.rest ?? []).length >= 64 ? 12 : (reading.rest ?? []).some((byte) => byte) ? 3 : 0;
    found.push({ form, label, reading, points: misfits + extra + handicap });
  };
  const handicap = { send: 0, ud: 1, xrc: 4, raw: 1, recv: 7, srq: 8, cqe: 0, eqe: 1, cmd: 0 };
  for (const [form, [label, readAs]] of FORMS) add(form, label, readAs(bytes), handicap[form]);
  for (const { name, size } of DATA.structures) {
    if (size === bytes.length) add(name, name, single(name, bytes), 6);
  }
  return found.sort((a, b) => a.points - b.points);
}
