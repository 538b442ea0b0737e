// Makes calls with the official Node SDKs, unmodified. Each line of standard
// input is a call, as nodeCall of ../../node_test.go; each line of standard output is
// what the SDK made of the answer, in the same order.

import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

// sdk makes a client of the call, and has it note what each try was answered.
function sdk(Client, call, tries) {
  const noting = async (...request) => {
    const began = performance.now();
    const answer = await fetch(...request);
    tries.push({
      status: answer.status,
      after: performance.now() - (tries.at(-1)?.ended ?? began),
      ended: performance.now(),
      retryAfterMs: Number(answer.headers.get("retry-after-ms") ?? 0),
      shouldRetry: answer.headers.get("x-should-retry") ?? "",
    });
    return answer;
  };
  return new Client({ baseURL: call.base, apiKey: call.key, defaultHeaders: call.headers, fetch: noting });
}

function chatUsage(heard, usage) {
  heard.Prompt = usage?.prompt_tokens ?? 0;
  heard.Cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  heard.Answer = usage?.completion_tokens ?? 0;
  heard.Reasoning = usage?.completion_tokens_details?.reasoning_tokens ?? 0;
}

async function chatStream(client, call, heard, more) {
  const body = {
    model: call.model, messages: [{ role: "user", content: call.prompt }], max_completion_tokens: call.maxOutput, stream: true, ...more,
  };
  for await (const chunk of await client.chat.completions.create(body)) {
    if (chunk.usage) chatUsage(heard, chunk.usage);
    const delta = chunk.choices[0]?.delta;
    heard.Text += delta?.content ?? "";
    for (const { function: f } of delta?.tool_calls ?? []) heard.Tool += (f.name ?? "") + f.arguments;
  }
}

function response(heard, answer) {
  heard.Text = answer.output.flatMap((item) => item.content ?? []).map((part) => part.text ?? "").join("");
  heard.Tool = answer.output.filter((item) => item.type === "function_call").map((item) => item.name + item.arguments).join("");
  heard.Prompt = answer.usage.input_tokens;
  heard.Cached = answer.usage.input_tokens_details.cached_tokens;
  heard.Answer = answer.usage.output_tokens;
  heard.Reasoning = answer.usage.output_tokens_details.reasoning_tokens;
}

function messageUsage(heard, usage) {
  heard.Prompt = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
  heard.Cached = usage.cache_read_input_tokens;
  heard.Answer = usage.output_tokens;
  heard.Reasoning = usage.output_tokens_details?.thinking_tokens ?? 0;
}

// The calls, by the names of the Go test.
const calls = {
  async "openai chat"(call, heard, tries) {
    const answer = await sdk(OpenAI, call, tries).chat.completions.create({
      model: call.model, messages: [{ role: "user", content: call.prompt }], max_completion_tokens: call.maxOutput,
    });
    heard.Text = answer.choices[0].message.content ?? "";
    for (const { function: f } of answer.choices[0].message.tool_calls ?? []) heard.Tool += f.name + f.arguments;
    chatUsage(heard, answer.usage);
  },

  async "openai chat streamed"(call, heard, tries) {
    await chatStream(sdk(OpenAI, call, tries), call, heard, {});
  },

  async "openai chat streamed with usage"(call, heard, tries) {
    await chatStream(sdk(OpenAI, call, tries), call, heard, { stream_options: { include_usage: true } });
  },

  async "openai responses"(call, heard, tries) {
    const body = { model: call.model, input: call.prompt, max_output_tokens: call.maxOutput };
    response(heard, await sdk(OpenAI, call, tries).responses.create(body));
  },

  async "openai responses streamed"(call, heard, tries) {
    const body = { model: call.model, input: call.prompt, max_output_tokens: call.maxOutput, stream: true };
    let text = "";
    for await (const event of await sdk(OpenAI, call, tries).responses.create(body)) {
      if (event.type === "response.output_text.delta") heard.Text = text += event.delta;
      if (event.type === "response.completed") response(heard, event.response);
    }
    heard.Text = text;
  },

  async "openai embeddings"(call, heard, tries) {
    const answer = await sdk(OpenAI, call, tries).embeddings.create({ model: call.model, input: [call.prompt, call.prompt] });
    heard.Text = answer.data.map((entry) => JSON.stringify(entry.embedding)).join("");
    heard.Prompt = answer.usage.prompt_tokens;
  },

  async "anthropic messages"(call, heard, tries) {
    const answer = await sdk(Anthropic, call, tries).messages.create({
      model: call.model, max_tokens: call.maxOutput, messages: [{ role: "user", content: call.prompt }],
    });
    for (const block of answer.content) {
      if (block.type === "text") heard.Text += block.text;
      if (block.type === "tool_use") heard.Tool += block.name + JSON.stringify(block.input);
    }
    messageUsage(heard, answer.usage);
  },

  async "anthropic messages streamed"(call, heard, tries) {
    const stream = await sdk(Anthropic, call, tries).messages.create({
      model: call.model, max_tokens: call.maxOutput, messages: [{ role: "user", content: call.prompt }], stream: true,
    });
    let usage;
    for await (const event of stream) {
      if (event.type === "message_start") usage = event.message.usage;
      if (event.type === "message_delta") usage = { ...usage, ...event.usage };
      if (event.content_block?.type === "tool_use") heard.Tool += event.content_block.name;
      heard.Text += event.delta?.text ?? "";
      heard.Tool += event.delta?.partial_json ?? "";
      messageUsage(heard, usage);
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  const outcome = { heard: { Text: "", Tool: "", Prompt: 0, Cached: 0, Answer: 0, Reasoning: 0 }, tries: [] };
  try {
    await calls[call.name](call, outcome.heard, outcome.tries);
  } catch (error) {
    outcome.error = { message: String(error), kind: error.constructor.name, status: error.status ?? 0, code: error.code ?? "" };
  }
  console.log(JSON.stringify(outcome));
}
