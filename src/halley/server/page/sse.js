// Parses server-sent events from a fetch() body: an async generator of the data of each event.

export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  let isBehindReturn = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      if (value === "") continue;
      const text = isBehindReturn && value.startsWith("\n") ? value.slice(1) : value;
      isBehindReturn = text.endsWith("\r");
      const lines = (rest + text).split(/\r\n|\r|\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        } else if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});  // the connection may be gone already
  }
}
