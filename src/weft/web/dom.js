// Create elements. Strings become text nodes. HTML is set only by `trusted`, with HTML that the
// server has sanitised.

/** An element: `el("button", {class: "quiet", onclick}, "Pin")`. Strings become text nodes. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Fill a node with HTML that the server's sanitiser wrote. */
export function trusted(node, html) {
  node.innerHTML = html;
  return node;
}

/** Replace the children of a node. */
export function refill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** 12,345 in the reader's locale. */
export function count(number) {
  return Number(number ?? 0).toLocaleString();
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** "3 min ago", from seconds since 1970. */
export function ago(seconds) {
  if (!seconds) return "";
  const past = Math.max(0, Date.now() / 1000 - seconds);
  for (const [size, unit] of [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ]) {
    if (past >= size) return `${Math.floor(past / size)} ${unit} ago`;
  }
  return "just now";
}
