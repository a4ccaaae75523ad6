// The commit graph: all branches, newest first, with compactions, merges and forks.
//
// The server assigns the lanes (`GET /api/graph`). Only the rows in view are in the document: lines
// and dots in one SVG, texts in a list beside them. Drag to pan, Ctrl+wheel or the buttons to zoom.

import { button, byId, clock, count, el, plural, reconcile, refill, svg } from "./dom.js";
import { get } from "./api.js";
import { grip } from "./merge.js";
import { effect, watch } from "./signals.js";
import { state } from "./state.js";

const ROW = 30; // pixels at zoom 1
const LANE = 16;
const MARGIN = 12; // rows drawn beyond the view
const FIRST_COMMITS = 500; // commits that are read first
const CHUNK = 64; // rows per entry of the index of lines
const COLOURS = 6; // classes `lane-0` to `lane-5`
const [SMALLEST, LARGEST] = [0.2, 2];
const TINY = 0.55; // below this zoom, texts would overlap
const DRAG = 4; // pixels that make a click a drag

const KINDS = {
	"": "All kinds",
	messages: "Messages",
	compact: "Compactions",
	merge: "Merges",
	edit: "Edits",
	revert: "Reverts",
	annotate: "Pins and skips",
	note: "Notes",
};
const CHANGES = ["compact", "merge", "edit", "revert", "annotate", "note", "setup", "splice"];

export class Graph {
	/** `read(id)` shows the thread as of a commit; `commands(commit)` are the buttons for a commit:
	 *  [{label, run}]. */
	constructor({ read, commands }) {
		Object.assign(this, { read, commands, zoom: 1, active: -1, reads: 0, all: [], rows: [], chunks: [] });
		this.items = new Map(); // the drawn rows by commit
		this.scroller = byId("graph-scroll");
		this.sizer = byId("graph-sizer");
		this.list = byId("graph-list");
		this.svg = svg("svg", { "aria-hidden": "true" });
		this.sizer.prepend(this.svg);
		const kinds = Object.entries(KINDS).map(([value, label]) => el("option", { value }, label));
		refill(byId("graph-kind"), ...kinds);
		this.addListeners();
		const key = () => state.tab === "graph" && state.thread && `${state.thread}\n${state.updates}`;
		watch(key, (isShown) => isShown && this.load(state.thread));
		effect(() => this.mark(state.at));
	}

	addListeners() {
		this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
		new ResizeObserver(() => this.draw()).observe(this.scroller);
		for (const id of ["graph-branch", "graph-kind", "graph-text"])
			byId(id).addEventListener("input", () => this.filter());
		byId("graph-in").addEventListener("click", () => this.setZoom(this.zoom * 1.25));
		byId("graph-out").addEventListener("click", () => this.setZoom(this.zoom / 1.25));
		this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
		this.list.addEventListener("keydown", (event) => this.key(event));
		this.scroller.addEventListener("click", (event) => this.click(event));
		this.addPanning();
	}

	/** Drag with the mouse to pan; touch screens pan by themselves. */
	addPanning() {
		const { scroller } = this;
		scroller.addEventListener("pointerdown", (event) => {
			if (event.button !== 0 || event.pointerType !== "mouse" || event.target.closest(".grip")) return;
			const start = { x: event.clientX, y: event.clientY };
			const from = { left: scroller.scrollLeft, top: scroller.scrollTop };
			const move = ({ clientX, clientY }) => {
				const [x, y] = [clientX - start.x, clientY - start.y];
				if (!this.isDragged && Math.hypot(x, y) < DRAG) return;
				this.isDragged = true;
				scroller.classList.add("dragged");
				scroller.scrollTo(from.left - x, from.top - y);
			};
			const end = () => {
				removeEventListener("pointermove", move);
				scroller.classList.remove("dragged");
				setTimeout(() => (this.isDragged = false)); // the click of this drag comes first
			};
			addEventListener("pointermove", move);
			addEventListener("pointerup", end, { once: true });
		});
	}

	/** Read the graph of a thread: if it is not shown yet, first its newest commits, then all. If
	 *  reads overlap, only the newest one is shown. */
	async load(thread, limit = thread === this.thread ? null : FIRST_COMMITS) {
		this.reads += 1;
		const number = this.reads;
		try {
			const data = await get("/api/graph", { thread, limit });
			if (number !== this.reads) return;
			this.show(thread, data);
			if (data.more) await this.load(thread, null);
		} catch (error) {
			if (number === this.reads) byId("graph-facts").textContent = error.message;
		}
	}

	show(thread, data) {
		const isOther = Boolean(this.thread) && thread !== this.thread;
		this.thread = thread;
		this.refs = data.refs;
		this.isPart = data.more;
		const reverted = new Set(data.reverted ?? []);
		this.all = data.commits.map(([id, kind, lane, created, label, parents], index) => ({
			id, kind: reverted.has(id) ? `reverted ${kind}` : kind, lane, created, label, parents, index,
			refs: data.refs[id] ?? [],
		}));
		const chosen = isOther ? "" : byId("graph-branch").value;
		refill(
			byId("graph-branch"),
			el("option", { value: "" }, "All branches"),
			...data.branches.map((name) => el("option", { value: name }, name)),
		);
		byId("graph-branch").value = data.branches.includes(chosen) ? chosen : "";
		if (isOther) {
			byId("graph-text").value = byId("graph-kind").value = "";
			this.zoom = 1;
			this.scroller.scrollTo(0, 0);
			this.selected = null;
		}
		this.filter();
	}

	/** Show the commits that match the filters; lines lead to the next ancestor that is shown. */
	filter() {
		const [branch, kind] = [byId("graph-branch").value, byId("graph-kind").value];
		const words = byId("graph-text").value.trim().toLowerCase();
		const reachable = branch ? this.reachable(branch) : null;
		const matches = (commit) =>
			(!reachable || reachable.has(commit.index)) &&
			(!kind || (kind === "messages" ? !CHANGES.includes(commit.kind) : commit.kind === kind)) &&
			(!words ||
				commit.label.toLowerCase().includes(words) ||
				commit.id.startsWith(words) ||
				commit.refs.some((name) => name.toLowerCase().includes(words)));
		this.rows = this.all.filter(matches);
		const places = new Map(this.rows.map((commit, row) => [commit.index, row]));
		const nearest = new Array(this.all.length);
		for (let index = this.all.length - 1; index >= 0; index -= 1) {
			const parent = this.all[index].parents[0];
			nearest[index] = places.get(index) ?? (parent ? nearest[parent[0]] : undefined);
		}
		this.connect(nearest);
		this.active = Math.min(this.active, this.rows.length - 1);
		if (this.selected) this.active = this.rows.findIndex(({ id }) => id === this.selected);
		const [shown, all] = [this.rows.length, this.all.length];
		const facts = shown === all ? plural(all, "commit") : `${count(shown)} of ${plural(all, "commit")}`;
		byId("graph-facts").textContent = this.isPart ? `${facts}; reading the others …` : facts;
		this.draw(true);
		this.showCommands();
	}

	/** The positions of the commits that a branch reaches. */
	reachable(branch) {
		const head = this.all.find(({ refs }) => refs.includes(branch));
		const known = new Set();
		const waiting = head ? [head.index] : [];
		while (waiting.length) {
			const index = waiting.pop();
			if (known.has(index)) continue;
			known.add(index);
			for (const [parent] of this.all[index].parents) waiting.push(parent);
		}
		return known;
	}

	/** Make the lines between the shown rows, and an index of them by position. */
	connect(nearest) {
		this.chunks = [];
		const add = (edge) => {
			const last = Math.floor(edge.to / CHUNK);
			for (let chunk = Math.floor(edge.from / CHUNK); chunk <= last; chunk += 1)
				(this.chunks[chunk] ??= []).push(edge);
		};
		this.rows.forEach((commit, row) => {
			for (const [parent, lane] of commit.parents) {
				const to = nearest[parent];
				if (to === undefined || to <= row) continue;
				const skips = this.rows[to].index !== parent;
				add({ from: row, to, lane, start: commit.lane, end: this.rows[to].lane, skips });
			}
		});
	}

	// Drawing.

	get height() {
		return ROW * this.zoom;
	}

	get lane() {
		return LANE * Math.max(0.6, this.zoom);
	}

	x(lane) {
		return (lane + 0.75) * this.lane;
	}

	draw() {
		const { height, scroller } = this;
		if (!scroller.clientHeight) return; // the panel is not shown
		this.sizer.style.height = `${this.rows.length * height}px`;
		const first = Math.max(0, Math.floor(scroller.scrollTop / height) - MARGIN);
		const inView = Math.ceil(scroller.clientHeight / height) + 2 * MARGIN;
		const last = Math.min(this.rows.length, first + inView);
		const edges = this.edgesBetween(first, last);
		const lanes = Math.max(0, ...edges.flatMap(({ lane, start, end }) => [lane, start, end]));
		this.drawLines(first, last, edges, lanes + 1);
		this.drawRows(first, last, this.x(lanes + 0.75));
	}

	edgesBetween(first, last) {
		const edges = new Set();
		for (let chunk = Math.floor(first / CHUNK); chunk <= Math.floor(last / CHUNK); chunk += 1)
			for (const edge of this.chunks[chunk] ?? [])
				if (edge.from < last && edge.to >= first) edges.add(edge);
		return [...edges];
	}

	drawLines(first, last, edges, lanes) {
		const { height } = this;
		const [above, below] = [-2 * height, (last - first + 2) * height];
		const y = (row) => Math.min(below, Math.max(above, (row - first + 0.5) * height));
		const path = ({ from, to, lane, start, end }) => {
			const [x0, xl, x1] = [this.x(start), this.x(lane), this.x(end)];
			const bend = height / 2;
			const [top, bottom] = [y(from), y(to)];
			if (to === from + 1 && lane !== start) return `M${x0} ${top}C${x0} ${top + bend} ${x1} ${bottom - bend} ${x1} ${bottom}`;
			const turn = y(from + 1);
			const join = y(to - 1);
			const head = xl === x0 ? `M${x0} ${top}` : `M${x0} ${top}C${x0} ${top + bend} ${xl} ${turn - bend} ${xl} ${turn}`;
			const tail = xl === x1 ? `L${x1} ${bottom}` : `L${xl} ${join}C${xl} ${join + bend} ${x1} ${bottom - bend} ${x1} ${bottom}`;
			return head + tail;
		};
		const nodes = edges.map((edge) =>
			svg("path", { d: path(edge), class: `edge lane-${edge.lane % COLOURS}${edge.skips ? " skips" : ""}` }),
		);
		for (let row = first; row < last; row += 1) {
			const { lane, kind, id } = this.rows[row];
			const [x, radius] = [this.x(lane), Math.max(2, 4.5 * Math.min(1, this.zoom))];
			const name = `dot lane-${lane % COLOURS} ${kind}${id === this.reading ? " reading" : ""}`;
			const box = { x: x - radius, y: y(row) - radius, width: 2 * radius, height: 2 * radius, class: name };
			nodes.push(kind === "compact" ? svg("rect", box) : svg("circle", { cx: x, cy: y(row), r: radius, class: name }));
		}
		this.svg.setAttribute("width", Math.ceil(this.x(lanes)));
		this.svg.setAttribute("height", Math.max(0, (last - first) * height));
		this.svg.style.top = `${first * height}px`;
		this.svg.replaceChildren(...nodes);
	}

	drawRows(first, last, left) {
		const items = [];
		const old = this.items;
		this.items = new Map();
		for (let row = first; row < last; row += 1) {
			const commit = this.rows[row];
			const key = JSON.stringify([row, this.rows.length, row === this.active, this.reading === commit.id, commit.refs]);
			const known = old.get(commit.id);
			const node = known?.key === key ? known.node : this.item(commit, row);
			this.items.set(commit.id, { key, node });
			node.style.top = `${row * this.height}px`;
			node.style.height = `${this.height}px`;
			node.style.paddingLeft = `${left}px`;
			items.push(node);
		}
		this.list.classList.toggle("tiny", this.zoom < TINY);
		reconcile(this.list, items);
		const active = this.rows[this.active];
		if (active) this.list.setAttribute("aria-activedescendant", `graph-${active.id}`);
		else this.list.removeAttribute("aria-activedescendant");
	}

	item(commit, row) {
		const chips = commit.refs.map((name) => {
			const isTag = name.startsWith("tag:");
			return el("span", { class: isTag ? "ref tag" : "ref", "data-branch": isTag ? null : name }, isTag ? name.slice(4) : name);
		});
		return el(
			"li",
			{
				id: `graph-${commit.id}`,
				role: "option",
				class: `graph-row kind-${commit.kind}${row === this.active ? " active" : ""}`,
				"data-row": row,
				"aria-selected": String(commit.id === this.reading || row === this.active),
				"aria-setsize": this.rows.length,
				"aria-posinset": row + 1,
				"aria-current": commit.id === this.reading ? "true" : null,
				title: `${commit.id.slice(0, 7)} ${commit.kind}, ${clock(commit.created)}`,
			},
			grip(commit.id),
			...chips,
			el("span.graph-kind", commit.kind),
			el("span.graph-label", commit.label),
			el("time.meta", clock(commit.created)),
		);
	}

	/** Mark the commit that is read now; null: the newest. */
	mark(id) {
		this.reading = id;
		this.draw();
	}

	setZoom(zoom, at = this.scroller.clientHeight / 2) {
		const row = (this.scroller.scrollTop + at) / this.height;
		this.zoom = Math.min(LARGEST, Math.max(SMALLEST, zoom));
		this.sizer.style.height = `${this.rows.length * this.height}px`;
		this.scroller.scrollTop = row * this.height - at;
		this.draw();
	}

	// Mouse and keyboard.

	wheel(event) {
		if (!event.ctrlKey && !event.metaKey) return; // plain wheel scrolls
		event.preventDefault();
		const { top } = this.scroller.getBoundingClientRect();
		this.setZoom(this.zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15), event.clientY - top);
	}

	click(event) {
		if (this.isDragged) return;
		const { top } = this.sizer.getBoundingClientRect();
		const row = Math.floor((event.clientY - top) / this.height);
		if (row < 0 || row >= this.rows.length) return;
		this.list.focus({ preventScroll: true });
		this.select(row);
		this.read(this.rows[row].id);
	}

	key(event) {
		const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 1);
		const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
		if (step !== undefined) this.select(Math.min(this.rows.length - 1, Math.max(0, this.active + step)));
		else if (event.key === "+" || event.key === "-") this.setZoom(this.zoom * (event.key === "+" ? 1.25 : 0.8));
		else if (event.key === "Enter" && this.rows[this.active]) this.read(this.rows[this.active].id);
		else return;
		event.preventDefault();
	}

	/** Select a row: it is outlined, in view, and its commands are below the graph. */
	select(row) {
		this.active = row;
		this.selected = this.rows[row]?.id ?? null;
		const { scroller, height } = this;
		const top = row * height;
		if (top < scroller.scrollTop) scroller.scrollTop = top;
		else if (top + height > scroller.scrollTop + scroller.clientHeight)
			scroller.scrollTop = top + height - scroller.clientHeight;
		this.draw();
		this.showCommands();
	}

	/** Show the buttons for the selected commit. Equal ones stay, so that a click on them is not lost
	 *  when the graph is read again. */
	showCommands() {
		const commit = this.rows[this.active];
		const bar = byId("graph-commands");
		bar.hidden = !commit;
		if (!commit) return;
		const commands = this.commands(commit);
		const key = JSON.stringify([commit.id, commands.map(({ label, title }) => [label, title])]);
		if (key === this.commandsKey) return;
		this.commandsKey = key;
		const buttons = commands.map(({ label, run, title }) => button(label, () => run(commit), { title }));
		refill(bar, el("p.meta", el("code", commit.id.slice(0, 7)), ` ${commit.kind}, ${clock(commit.created)}`), el("div.line", ...buttons));
	}
}
