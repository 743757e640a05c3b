// Calls of the part of Continue's editor extensions that speaks to models, for record_clients.py.
//
//   node continue_core_calls.mjs MODULE URL MODEL
//
// MODULE is that part as one module (testdata/client_bodies/README.md). "{scenario}" in URL is
// replaced by the scenario's name. Prints a line "ok SCENARIO" or "failed SCENARIO: ..." for each;
// the exit code is the number of failures.
const [modulePath, url, model] = process.argv.slice(2);
const { OpenAI, OpenRouter } = await import(modulePath);

const signal = new AbortController().signal;
const weather = {
  type: 'function',
  displayTitle: 'Weather',
  readonly: true,
  group: 'Built-In',
  function: {
    name: 'weather',
    description: 'Says the weather.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const call = {
  id: 'call_1',
  type: 'function',
  function: { name: 'weather', arguments: '{"city":"Rome"}' },
};
const asked = [
  { role: 'system', content: 'Be short.' },
  { role: 'user', content: [{ type: 'text', text: 'Weather in Rome?' }] },
];
// A turn of its agent: a thought, a call, its result.
const called = [
  ...asked,
  { role: 'thinking', content: 'I ask.', reasoning_details: [{ type: 'text', signature: 's' }] },
  { role: 'assistant', content: '', toolCalls: [call] },
  { role: 'tool', content: 'sunny', toolCallId: 'call_1' },
];
const png =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD' +
  'hgGAWjR9awAAAABJRU5ErkJggg==';
const sampling = {
  temperature: 0.5,
  topP: 0.9,
  topK: 20,
  minP: 0.1,
  frequencyPenalty: 0.1,
  presencePenalty: 0.1,
  maxTokens: 24,
  stop: ['\n\n', '```'],
};

async function drain(stream) {
  let count = 0;
  for await (const chunk of stream) count += chunk ? 1 : 0;
  if (!count) throw new Error('nothing came');
}

const calls = {
  chat: (options) =>
    drain(new OpenAI({ ...options, completionOptions: sampling }).streamChat(asked, signal, {})),
  agent: (options) =>
    drain(new OpenAI(options).streamChat(called, signal, { tools: [weather], maxTokens: 24 })),
  edit: (options) =>
    drain(
      new OpenAI(options).streamChat(asked, signal, {
        maxTokens: 24,
        prediction: { type: 'content', content: 'Sunny.' },
      }),
    ),
  autocomplete: (options) =>
    drain(
      new OpenAI({ ...options, useLegacyCompletionsEndpoint: true }).streamComplete(
        '<|fim_prefix|>def f(<|fim_suffix|>\n<|fim_middle|>',
        signal,
        { raw: true, maxTokens: 24, temperature: 0.01, stop: ['<|endoftext|>', '<|file_sep|>'] },
      ),
    ),
  image: (options) =>
    drain(
      new OpenAI({ ...options, capabilities: { uploadImage: true } }).streamChat(
        [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is it?' },
              { type: 'imageUrl', imageUrl: { url: png } },
            ],
          },
        ],
        signal,
        { maxTokens: 24 },
      ),
    ),
  cached: (options) =>
    drain(
      new OpenRouter({
        ...options,
        model: `anthropic/claude-${model}`,
        cacheBehavior: { cacheSystemMessage: true, cacheConversation: true },
      }).streamChat(called, signal, { tools: [weather], maxTokens: 24 }),
    ),
};

let failures = 0;
for (const [name, run] of Object.entries(calls)) {
  const apiBase = url.replace('{scenario}', name) + '/';
  try {
    await run({ model, apiBase, apiKey: 'key', contextLength: 32768 });
    console.log('ok', name);
  } catch (error) {
    failures += 1;
    console.log(`failed ${name}:`, error);
  }
}
process.exit(failures);
