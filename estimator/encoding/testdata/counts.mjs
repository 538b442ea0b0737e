// Writes what the npm package tiktoken counts: counts.jsonl for the texts of
// texts.json, repeated units and generated texts, and points.json for every
// code point of the planes that are not all alike, each in a text of its own.
//
//   npm install && npm run counts
import { readFileSync, writeFileSync } from "node:fs";
import { get_encoding } from "tiktoken";

const names = ["o200k_base", "cl100k_base", "p50k_base", "r50k_base"];
const encodings = names.map((name) => get_encoding(name));
const here = (name) => new URL(name, import.meta.url);
const count = (encoding, text) => encoding.encode_ordinary(text).length;

// Mulberry32: the same texts every time.
let state = 20261202;
function random(below) {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * below);
}
const pick = (list) => list[random(list.length)];

const alphabets = [
  "abcdefghijklmnopqrstuvwxyz", "etaoin shrdlu", "AbCdE", " ", " \n\r\t", "0123456789", "'sTrevelLmdD\u017f", "e\u0301\u01c5\u02b0\u05d0A",
  "\u4e2d\u6587\u5b57\u4e00\u4e8c\u4e09\u7684\u662f\u4e86", "\u5f69\u7968\u795e\u5929\u5317\u4eac", "\u{1f600}\u{1f469}\u200d\u{1f1ef}\ufe0f", "=-/#*.,;!\n", "\u0085\u00a0\u2028\ufeff\u0000 ",
  "ABCdef123+/=", "\u0430\u0431\u0432\u0413", "\u0915\u094d\u0937\u093e ", "\uac00\ub098\ub2e4 ", "{}[]()\"': \n\t",
];
function generated() {
  let text = "";
  for (let runs = 1 + random(5); runs > 0; runs--) {
    const alphabet = [...pick(alphabets)];
    if (random(4) === 0) {
      const any = random(0x20000);
      if (any < 0xd800 || any > 0xdfff) alphabet.push(String.fromCodePoint(any));
    }
    for (let length = pick([1, 1, 2, 3, 5, 9, 20]); length > 0; length--) text += pick(alphabet);
  }
  return text;
}

const rows = [];
for (const text of JSON.parse(readFileSync(here("texts.json"), "utf8"))) rows.push({ text, times: 1 });
for (const [text, times] of [
  ["a", 127], ["a", 128], ["a", 129], ["a", 1000], ["a", 5000], ["A", 300], ["ab", 2000], ["xq", 1100], [" ", 128], [" ", 129], [" ", 4099], ["\n", 3000],
  [" \n", 700], ["\t", 900], ["7", 3000], ["=", 2500], ["- ", 500], ["\u{1f600}", 900], ["\u{1f469}\u200d", 600], ["e\u0301", 900], ["\u0301", 900],
  ["\u4e2d\u6587\u5b57", 800], ["\u5f69\u795e\u7968", 700], ["\ufffd", 700], ["<|endoftext|>", 300], ["Zm9vYmFyL2Jheg", 200], ["the quick brown fox ", 200], ["\u0000", 700],
  ["antidisestablishmentarianism", 90], ["\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", 200], ["\uac00\ub098\ub2e4\ub77c", 300], ["zyxwvutsrqponmlkjihgfedcba", 90],
]) rows.push({ text, times });
for (const units of ["abcdefghijklmnopqrstuvwxyz", "\u4e2d\u6587\u5b57\u4e00\u4e8c\u4e09\u7684\u662f\u4e86\u4e0d\u4eba\u6211\u5728\u6709\u4ed6\u5f69\u795e", "ACGT", "0123456789"]) {
  let text = "";
  while (text.length < 3000) text += pick([...units]);
  rows.push({ text, times: 1 });
}
for (let i = 0; i < 1500; i++) rows.push({ text: generated(), times: 1 });

writeFileSync(here("counts.jsonl"), rows.map(({ text, times }) =>
  JSON.stringify({ text, times, counts: encodings.map((e) => count(e, text.repeat(times))) })).join("\n") + "\n");

// One number for 1,024 code points and encoding: the sum of the counts, each
// times its place in the block, from 1.
const blockSize = 1024;
const probe = (c) => `1${c}23 !${c}'s A${c}b${c}C ${c}\n${c}  ${c}'S${c}\u017f${c}!!`;
const blocks = [];
const splitters = [encodings[0], encodings[1], encodings[3]]; // p50k_base splits as r50k_base
for (let first = 0; first <= 0x10ffff; first += blockSize) {
  if (first >= 0x20000 && first % 0x8000 !== 0) continue; // whole planes are alike
  const sums = splitters.map(() => 0);
  for (let i = 0; i < blockSize; i++) {
    if (first + i >= 0xd800 && first + i <= 0xdfff) continue;
    const text = probe(String.fromCodePoint(first + i));
    splitters.forEach((e, k) => (sums[k] += (i + 1) * count(e, text)));
  }
  blocks.push([first, ...sums]);
}
writeFileSync(here("points.json"), "[\n" + blocks.map((b) => JSON.stringify(b)).join(",\n") + "\n]\n");
