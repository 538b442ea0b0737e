// Prices the uses of uses.json with the npm package @pydantic/genai-prices and
// writes genai.json beside them. It is run by hand, where the package is
// installed; tests read what it wrote:
//
//	npm install --no-save @pydantic/genai-prices@0.1.8 && node genai.mjs
import { readFileSync, writeFileSync } from 'node:fs'
import { calcPrice } from '@pydantic/genai-prices'

const here = new URL('.', import.meta.url)
const version = JSON.parse(readFileSync(new URL('node_modules/@pydantic/genai-prices/package.json', here))).version

// The package counts a whole with its parts where the broker's classes are
// disjoint.
function usageOf({ tokens: t = {}, units: u = {}, model }) {
  const sum = (...names) => names.reduce((n, name) => n + (t[name] ?? 0), 0)
  const usage = {
    input_tokens: sum('input', 'input_audio', 'input_image', 'input_video', 'cache_read', 'cache_read_audio', 'cache_read_image', 'cache_write', 'cache_write_1h'),
    cache_read_tokens: sum('cache_read', 'cache_read_audio', 'cache_read_image'),
    cache_write_tokens: sum('cache_write', 'cache_write_1h'),
    cache_write_1h_tokens: sum('cache_write_1h'),
    input_audio_tokens: sum('input_audio', 'cache_read_audio'),
    cache_audio_read_tokens: sum('cache_read_audio'),
    input_image_tokens: sum('input_image', 'cache_read_image'),
    cache_image_read_tokens: sum('cache_read_image'),
    input_video_tokens: sum('input_video'),
    output_tokens: sum('output', 'output_audio', 'output_image', 'output_video', 'reasoning'),
    output_audio_tokens: sum('output_audio'),
    output_image_tokens: sum('output_image'),
    output_video_tokens: sum('output_video'),
    output_reasoning_tokens: sum('reasoning'),
    audio_seconds: (u.second ?? 0) / 1000,
    input_document_pages: u.page ?? 0,
    [model.includes('rerank') ? 'rerank_searches' : 'web_searches']: u.search ?? 0,
  }
  return Object.fromEntries(Object.entries(usage).filter(([, n]) => n > 0))
}

const prices = JSON.parse(readFileSync(new URL('uses.json', here))).map((use) => {
  try {
    const price = calcPrice(usageOf(use), use.model, { providerId: use.provider, timestamp: new Date(use.at) })
    return price === null ? { error: 'no price' } : { model: price.model.id, usd: price.total_price, prices: price.model_price }
  } catch (error) {
    return { error: String(error.message ?? error).slice(0, 200) }
  }
})
writeFileSync(new URL('genai.json', here), JSON.stringify({ package: '@pydantic/genai-prices', version, prices }, null, 1) + '\n')
