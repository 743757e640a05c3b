// The routes of /openapi.json. Its texts are set as text, never as HTML.

const DEPTH_MAX = 4;
const byId = (id) => document.getElementById(id);

let description = null;

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function resolve(schema) {
  const name = schema?.$ref?.split("/").at(-1);
  return name ? description.components.schemas[name] ?? {} : schema ?? {};
}

// The schemas that a value may have, without null.
function variants(schema) {
  const own = resolve(schema);
  if (own.anyOf) return own.anyOf.flatMap(variants);
  return own.type === "null" ? [] : [own];
}

function typeInWords(schema) {
  const words = variants(schema).map((variant) => {
    if (variant.const !== undefined) return JSON.stringify(variant.const);
    if (variant.enum) return variant.enum.filter((value) => value !== null).map((value) => JSON.stringify(value)).join(", ") || "null";
    const types = [variant.type ?? "any"].flat().filter((type) => type !== "null");
    return types.map((type) => (type === "array" ? `list of ${typeInWords(variant.items)}` : type)).join(" or ");
  });
  return [...new Set(words)].join(" or ") || "null";
}

function rangeInWords(schema) {
  const own = variants(schema)[0] ?? {};
  const words = [];
  if (own.minimum !== undefined) words.push(`at least ${own.minimum}`);
  if (own.exclusiveMinimum !== undefined) words.push(`above ${own.exclusiveMinimum}`);
  if (own.maximum !== undefined) words.push(`at most ${own.maximum}`);
  const text = words.join(", ");
  return text && `${text[0].toUpperCase()}${text.slice(1)}.`;
}

// A row for each member, and below it those of the object, or list of objects, that it is.
function addRows(schema, path, depth, table) {
  for (const variant of variants(schema)) {
    if (variant.items) addRows(variant.items, `${path}[]`, depth, table);
    for (const [name, member] of Object.entries(variant.properties ?? {})) {
      const full = path ? `${path}.${name}` : name;
      const row = element("tr");
      const isRequired = (variant.required ?? []).includes(name);
      const standard = member.default === undefined ? "" : JSON.stringify(member.default);
      row.append(element("td", full, depth > 0 ? "deep" : ""), element("td", typeInWords(member)),
        element("td", isRequired ? "required" : standard),
        element("td", [member.description, rangeInWords(member)].filter(Boolean).join(" ")));
      table.append(row);
      if (depth < DEPTH_MAX) addRows(member, full, depth + 1, table);
    }
  }
}

function membersOf(title, schema) {
  const section = element("section");
  section.append(element("h3", title));
  const body = element("tbody");
  addRows(schema, "", 0, body);
  if (body.children.length === 0) {
    section.append(element("p", typeInWords(schema)));
    return section;
  }
  const table = element("table");
  const head = element("tr");
  for (const name of ["member", "type", "default", "meaning"]) {
    const cell = element("th", name);
    cell.scope = "col";
    head.append(cell);
  }
  const header = element("thead");
  header.append(head);
  table.append(header, body);
  table.setAttribute("aria-label", title);
  const scroll = element("div", undefined, "scroll");
  scroll.append(table);
  section.append(scroll);
  return section;
}

function bodyOf(operation) {
  const parts = element("div");
  const request = operation.requestBody?.content?.["application/json"]?.schema;
  if (request) parts.append(membersOf("Request", request));
  for (const [status, response] of Object.entries(operation.responses)) {
    if (!status.startsWith("2")) continue;
    for (const [type, content] of Object.entries(response.content ?? {})) {
      if (type !== "text/event-stream") parts.append(membersOf(`Answer: ${type}`, content.schema));
    }
    if (response.content?.["text/event-stream"]) parts.append(element("p", "With stream: server-sent events."));
  }
  const errors = element("ul");
  for (const [status, response] of Object.entries(operation.responses)) {
    if (!status.startsWith("2")) errors.append(element("li", `${status}: ${response.description}`));
  }
  if (errors.children.length > 0) parts.append(element("h3", "Errors"), errors);
  if (operation.security?.length === 0) parts.append(element("p", "Needs no API key."));
  return parts;
}

// What is inside is made when it is opened first.
function routeOf(path, method, operation) {
  const route = element("details", undefined, "route");
  const summary = element("summary");
  summary.append(element("h2", `${method.toUpperCase()} ${path}`), element("span", operation.summary));
  route.append(summary);
  route.dataset.text = `${path} ${operation.summary} ${JSON.stringify(resolve(operation.requestBody?.content?.["application/json"]?.schema))}`.toLowerCase();
  route.addEventListener("toggle", () => {
    if (route.open && route.children.length === 1) route.append(bodyOf(operation));
  });
  return route;
}

function show() {
  byId("version").textContent = description.info.version;
  const routes = byId("routes");
  routes.replaceChildren();
  for (const [path, operations] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      routes.append(routeOf(path, method, operation));
    }
  }
  filter();
}

function filter() {
  const words = byId("filter").value.toLowerCase();
  let numShown = 0;
  for (const route of byId("routes").children) {
    route.hidden = !route.dataset.text.includes(words);
    if (!route.hidden) ++numShown;
  }
  byId("notice").textContent = description && numShown === 0 ? "No route has this." : "";
}

async function load() {
  const key = byId("key").value;
  try {
    const response = await fetch("/openapi.json", key ? { headers: { Authorization: `Bearer ${key}` } } : {});
    byId("access").hidden = response.status !== 401 && !key;
    if (!response.ok) {
      byId("notice").textContent = response.status === 401 ? "This server needs an API key." : `The server answers ${response.status}.`;
      return;
    }
    description = await response.json();
    show();
  } catch (error) {
    byId("notice").textContent = `The server cannot be reached: ${error.message}`;
  }
}

byId("filter").addEventListener("input", filter);
byId("tools").addEventListener("submit", (event) => {
  event.preventDefault();
  load();
});
load();
