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

/** A send WQE, segment by segment, for a queue pair with such a peer. `fault` says what does not fit. */
function takeApart(bytes, peer) {
  if (bytes.length < 16) return { parts: [], fault: `a WQE has 16 bytes at least, and here are ${bytes.length}` };
  const ctrl = bytes.subarray(0, 16);
  const field = fieldOf("CtrlSeg", "opcode");
  const byPeer = DATA.wqe.opcodes[bitsOf(field, ctrl)];
  const length = 16 * read("CtrlSeg", "ds", ctrl);
  const walk = new Walk(bytes.subarray(0, Math.min(length, bytes.length)));
  if (length >= 16) walk.take("CtrlSeg");
  else return { parts: [part("", "CtrlSeg", 0, ctrl)], fault: "ds is 0, but counts the control segment too" };
  const result = { parts: walk.parts, rest: bytes.subarray(length) };
  if (length > bytes.length) result.fault = `ds says ${length} bytes, and here are ${bytes.length}`;
  else if (!byPeer) result.fault = `no operation has opcode ${valueText(field, ctrl)}`;
  else {
    const [heads, tail] = byPeer[peer][read("CtrlSeg", "opmod", ctrl)] ?? byPeer[peer].else;
    try {
      heads.forEach((name) => walk.head(name));
      walk.tail(tail, read("CtrlSeg", "opmod", ctrl));
    } catch (error) {
      result.fault = error.message;
    }
  }
  return result;
}

/** Walks a WQE. */
class Walk {
  constructor(bytes) {
    Object.assign(this, { bytes, parts: [], at: 0 });
  }

  get left() { return this.bytes.subarray(this.at); }

  /** The next bytes, as a structure. */
  take(name) {
    const { size } = STRUCTURES.get(name);
    return this.add("", name, size, size);
  }

  /** The next bytes, alone. They may take more room than they fill. */
  raw(title, size, room = size) {
    return size ? this.add(title, null, size, room) : undefined;
  }

  add(title, name, size, room) {
    const end = this.at + size;
    if (end > this.bytes.length) throw new Error(`${title || name} would end at byte ${end} of ${this.bytes.length}`);
    this.parts.push(part(title, name, this.at, this.left.subarray(0, size)));
    this.at = Math.min(this.at + room, this.bytes.length);
    return this.parts.at(-1).bytes;
  }

  /** A segment that the operation has once. */
  head(name) {
    const compact = { AvSeg: "AvBaseSeg", DcAvSeg: "DcAvBaseSeg" }[name];
    const isCompact = compact && this.left.length >= 16 && !read(compact, "ext", this.left);
    const segment = this.take(isCompact ? compact : name);
    if (name !== "EthSeg") return;
    const size = read(name, "inline_hdr_sz", segment);
    const behind = size & DATA.wqe.insert_vlan ? 0 : Math.max(0, size - DATA.wqe.header_start);
    this.raw("the frame's head, from its third byte on", behind, Math.ceil(behind / 16) * 16);
  }

  tail(kind, opmod) {
    if (kind === "umr") return this.umr(opmod);
    if (kind === "other") return this.raw("segments of the operation", this.left.length);
    if (kind === "none" && this.left.length) throw new Error("there is more than the operation has");
    while (this.left.length) {
      if (!read("DataSeg", "inline", this.left)) {
        this.take("DataSeg");
        continue;
      }
      if (kind === "memory") throw new Error("data that arrive go to memory, and not into the WQE");
      const size = read("InlineSeg", "byte_count", this.take("InlineSeg"));
      this.raw("its data", size, Math.ceil((4 + size) / 16) * 16 - 4);
    }
    return undefined;
  }

  /** What changes of a key, its context, the translation list, and what follows that. */
  umr(opmod) {
    const ctrl = this.take("UmrCtrlSeg");
    this.take("Mkc");
    const n = read("UmrCtrlSeg", "klm_octowords", ctrl);
    if (n && !read("UmrCtrlSeg", "inline", ctrl)) this.take("DataSeg");
    else if (n) this.list(n);
    const isOffset = read("UmrCtrlSeg", "translation_offset_en", ctrl);
    this.bsf(isOffset ? 0 : read("UmrCtrlSeg", "translation_offset_or_bsf_octowords", ctrl), opmod);
    this.raw("rest", this.left.length);
  }

  list(n) {
    const isZero = (bytes) => bytes.every((byte) => !byte);
    const end = this.at + 16 * n;
    const entries = Array.from({ length: 2 * n }, (_, i) => this.left.subarray(8 * i, 8 * i + 8));
    if (end > this.bytes.length) throw new Error(`the list would end at byte ${end} of ${this.bytes.length}`);
    // Pages have a permission, and addresses of 4,096 bytes' alignment.
    const isPage = (e) => isZero(e) || ((e[6] & 15) === 0 && e[7] >= 1 && e[7] <= 3);
    const arePages = entries.every(isPage) && !entries.every(isZero);
    for (let repeated = 0; this.at < end;) {
      const octoword = this.left.subarray(0, 16);
      if (repeated) {
        repeated--;
        this.take("RepeatEntrySeg");
      } else if (isZero(octoword)) this.raw("filling of the list", 16);
      else if (arePages) [0, 8].forEach((at) => (isZero(octoword.subarray(at, at + 8)) ? this.raw("filling of the list", 8) : this.take("MttEntry")));
      else if (read("KlmEntry", "mkey", octoword) === DATA.wqe.repeat) {
        repeated = read("RepeatBlockSeg", "num_entries", this.take("RepeatBlockSeg"));
      } else this.take("KlmEntry");
    }
  }

  /** The byte stream format: of TLS, of encryption, or of a signature. */
  bsf(octowords, opmod) {
    for (; octowords >= 4 && this.left.length >= 64; octowords -= 4) {
      if (opmod) this.take("TlsStaticParams");
      else if (read("BsfCrypto", "bsf_type", this.left) === 1) this.take("BsfCrypto");
      else ["BsfBasic", "BsfExt", "BsfInl", "BsfInl"].forEach((name) => this.take(name));
    }
  }
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
  ["send", ["send WQE, RC or UC", (b) => takeApart(b, "none")]],
  ["ud", ["send WQE, UD", (b) => takeApart(b, "av")]],
  ["dc", ["send WQE, DC", (b) => takeApart(b, "dc")]],
  ["xrc", ["send WQE, XRC", (b) => takeApart(b, "xrc")]],
  ["raw", ["send WQE, raw packet", (b) => takeApart(b, "eth")]],
  ["ipoib", ["send WQE, IPoIB", (b) => takeApart(b, "ipoib")]],
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
    let misfits = reading.parts.filter((p) => p.name).reduce((n, p) => n + misfit(STRUCTURES.get(p.name), p.bytes), 0);
    // A CQE says by its opcode what it is, and its reserved bits may hold anything.
    if (form === "cqe") misfits = Math.min(misfits, 4);
    // What is left of the last block may be old; more than a block means that it is something else.
    const extra = (reading.rest ?? []).length >= 64 ? 12 : (reading.rest ?? []).some((byte) => byte) ? 3 : 0;
    found.push({ form, label, reading, points: misfits + extra + handicap });
  };
  const handicap = { send: 0, ud: 1, dc: 2, xrc: 4, raw: 1, ipoib: 3, recv: 7, srq: 8, cqe: 0, eqe: 1, cmd: 0 };
  for (const [form, [label, readAs]] of FORMS) add(form, label, readAs(bytes), handicap[form]);
  for (const { name, size } of DATA.structures) {
    if (size === bytes.length && !/Cqe$/.test(name)) add(name, name, single(name, bytes), 6);
  }
  return found.sort((a, b) => a.points - b.points);
}
