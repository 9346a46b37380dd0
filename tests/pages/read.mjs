// Reads streams as pages do, with the packages' own parsers: a JSON list of streams from stdin, what they made to stdout.
import { readFileSync } from "node:fs";

const short = (error) => String(error).slice(0, 400);
const ai = {};
const agUi = {};

// AI SDK: what `useChat` makes of a response, or the error that it would show.
async function readUI({ version, text, message }) {
  const sdk = (ai[version] ??= await import(`ai-${version}`));
  const chunks = sdk
    .parseJsonEventStream({ stream: new Response(text).body, schema: sdk.uiMessageChunkSchema })
    .pipeThrough(
      new TransformStream({
        transform(read, controller) {
          if (!read.success) throw read.error;
          controller.enqueue(read.value);
        },
      }),
    );
  const errors = [];
  let last = message;
  const messages = sdk.readUIMessageStream({ stream: chunks, message, onError: (error) => errors.push(short(error)) });
  for await (const one of messages) last = one;
  return { message: last, errors };
}

// AG-UI: the schema of each event, the order of all, and the messages that a client makes of them.
async function readAgUi({ events, messages }) {
  agUi.core ??= await import("@ag-ui/core/schemas");
  agUi.client ??= await import("@ag-ui/client");
  agUi.rxjs ??= await import("rxjs");
  const { EventSchemas } = agUi.core;
  const { verifyEvents, defaultApplyEvents, HttpAgent } = agUi.client;
  const { from, lastValueFrom, toArray } = agUi.rxjs;
  const parsed = events.map((event) => EventSchemas.parse(event));
  const verified = await lastValueFrom(verifyEvents(false)(from(parsed)).pipe(toArray()));
  const agent = new HttpAgent({ url: "http://unused.example", initialMessages: messages });
  const input = { threadId: "t", runId: "r", messages, state: {}, tools: [], context: [] };
  const changes = await lastValueFrom(defaultApplyEvents(input, from(verified), agent, []).pipe(toArray()));
  const made = changes.map((change) => change.messages).filter(Boolean);
  return { messages: made.at(-1) ?? messages, interrupts: agent.pendingInterrupts ?? [] };
}

const found = [];
for (const stream of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    found.push(await (stream.version ? readUI(stream) : readAgUi(stream)));
  } catch (error) {
    found.push({ refused: short(error) });
  }
}
process.stdout.write(JSON.stringify(found));
