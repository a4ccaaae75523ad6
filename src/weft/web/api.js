// Talking to the server: JSON over HTTP for what is asked, one socket for what is told.

/** An answer that says no: `message` for people, `place` names the field at fault. */
export class ApiError extends Error {
  constructor(message, place = null) {
    super(message);
    this.place = place;
  }
}

export function get(path, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = new URLSearchParams(words).toString();
  return ask(search ? `${path}?${search}` : path);
}

export function post(path, body = {}) {
  const headers = { "content-type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ApiError("the server does not answer");
  }
  const body = await answer.json().catch(() => null);
  if (answer.ok && body !== null) return body;
  const error = body?.error ?? {};
  throw new ApiError(error.message ?? `the server said ${answer.status}`, error.place ?? null);
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

/** A socket that comes back by itself. `onstate` hears "open" and "closed". */
export class Line {
  constructor(path, { onframe, onstate }) {
    this.path = path;
    this.onframe = onframe;
    this.onstate = onstate;
    this.wait = FIRST_WAIT;
    this.connect();
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}${this.path}`);
    this.socket.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      this.onstate("open");
    });
    this.socket.addEventListener("message", (message) => this.read(message.data));
    this.socket.addEventListener("close", () => {
      this.onstate("closed");
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
    });
  }

  read(data) {
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      console.warn("A frame that is not JSON was left out");
      return;
    }
    this.onframe(frame);
  }

  /** Send a frame; false if there is no connection to send it over. */
  send(frame) {
    if (this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }
}
