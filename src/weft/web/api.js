// The server: JSON over HTTP for requests, one socket for events.

/** An error from the server: `message` is for people, `place` names the wrong field. */
export class ApiError extends Error {
	constructor(message, { place = null, needed = null } = {}) {
		super(message);
		this.place = place;
		this.needed = needed; // the smallest budget of a compaction
	}
}

export function get(path, query = {}) {
	return request(withQuery(path, query));
}

/** A path with the fields that have a value. */
export function withQuery(path, query) {
	const entries = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
	const search = new URLSearchParams(entries).toString();
	return search ? `${path}?${search}` : path;
}

export function post(path, body = {}) {
	const headers = { "content-type": "application/json" };
	return request(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** Send a file as it is. */
export function upload(path, query, file) {
	const headers = { "content-type": "application/octet-stream" };
	return request(`${path}?${new URLSearchParams(query)}`, { method: "POST", headers, body: file });
}

async function request(path, options) {
	let response;
	try {
		response = await fetch(path, options);
	} catch {
		throw new ApiError("the server does not answer");
	}
	const body = await response.json().catch(() => null);
	if (response.ok && body !== null) return body;
	const error = body?.error ?? {};
	const message = error.message ?? `the server answered with status ${response.status}`;
	throw new ApiError(message, error);
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

/** A WebSocket that reconnects by itself. `onstate` is called with "open" or "closed". */
export class Socket {
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
			console.warn("Skipped a frame that is not JSON");
			return;
		}
		this.onframe(frame);
	}

	/** Send a frame; returns false without a connection. */
	send(frame) {
		if (this.socket.readyState !== WebSocket.OPEN) return false;
		this.socket.send(JSON.stringify(frame));
		return true;
	}
}
