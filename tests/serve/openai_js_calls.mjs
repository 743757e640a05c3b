// Calls of OpenAI's JavaScript client, for record_clients.py.
//
//   node openai_js_calls.mjs MODULE URL MODEL
//
// MODULE is the client as one module, as a bundler makes it of its sources. "{scenario}" in URL is
// replaced by the scenario's name. Prints a line "ok SCENARIO" or "failed SCENARIO: ..." for each;
// the exit code is the number of failures.
const [modulePath, url, model] = process.argv.slice(2);
const { default: OpenAI } = await import(modulePath);

const messages = [
  { role: 'system', content: 'Be short.' },
  { role: 'user', content: 'Weather in Rome?' },
];
const schema = {
  type: 'object',
  properties: { is_sunny: { type: 'boolean' } },
  required: ['is_sunny'],
  additionalProperties: false,
};
const weather = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'Says the weather.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    },
    strict: true,
    parse: JSON.parse,
    function: () => 'sunny',
  },
};
const format = { type: 'json_schema', json_schema: { name: 'weather', strict: true, schema } };

const calls = {
  chat: (client) =>
    client.chat.completions.create({
      model,
      messages,
      max_completion_tokens: 24,
      store: true,
      metadata: { a: 'b' },
      reasoning_effort: 'low',
      verbosity: 'low',
      prompt_cache_retention: '24h',
      logprobs: true,
      top_logprobs: 2,
      stop: ['\n\n'],
    }),
  stream: async (client) => {
    const stream = client.chat.completions.stream({
      model,
      messages,
      max_tokens: 24,
      stream_options: { include_usage: true, include_obfuscation: false },
      service_tier: 'priority',
    });
    return stream.finalChatCompletion();
  },
  parse: async (client) => {
    const first = await client.chat.completions.parse({ model, messages, response_format: format });
    return client.chat.completions.parse({
      model,
      messages: [...messages, first.choices[0].message, { role: 'user', content: 'Sure?' }],
      response_format: format,
    });
  },
  run_tools: (client) =>
    client.chat.completions
      .runTools(
        {
          model,
          messages,
          tools: [weather],
          tool_choice: 'required',
          parallel_tool_calls: false,
        },
        { maxChatCompletions: 2 },
      )
      .done(),
  completions: async (client) => {
    const stream = await client.completions.create({
      model,
      prompt: ['The'],
      max_tokens: 4,
      stream: true,
      suffix: null,
    });
    for await (const chunk of stream) chunk.choices;
  },
};

let failures = 0;
for (const [name, call] of Object.entries(calls)) {
  const baseURL = url.replace('{scenario}', name);
  try {
    await call(new OpenAI({ baseURL, apiKey: 'key', maxRetries: 0, timeout: 120000 }));
    console.log('ok', name);
  } catch (error) {
    failures += 1;
    console.log(`failed ${name}:`, error);
  }
}
process.exitCode = failures;
