// Usage and cost: of the open thread, per turn, and of all threads; by model and by day.
//
// The plots are SVG. Everything in them is in a table below too, for readers who do not see them.

import { button, byId, clock, count, el, plural, refill, svg } from "./dom.js";
import { get } from "./api.js";
import { register } from "./commands.js";
import { state } from "./state.js";

const [WIDTH, HEIGHT] = [560, 130];
const MOST_BARS = 120;

export class UsageDialog {
	/** `open(thread)` shows another thread. */
	constructor({ open }) {
		this.open = open;
		this.dialog = byId("usage-dialog");
		byId("usage").addEventListener("click", () => this.show("thread"));
		for (const scope of ["thread", "all"])
			byId(`usage-${scope}`).addEventListener("click", () => this.show(scope));
		register({ name: "usage.show", title: "Usage and cost", run: () => this.show("thread") });
		register({
			name: "usage.all",
			title: "Usage and cost of all threads",
			run: () => this.show("all"),
		});
	}

	async show(scope) {
		for (const name of ["thread", "all"])
			byId(`usage-${name}`).setAttribute("aria-pressed", String(name === scope));
		const body = byId("usage-body");
		refill(body, el("p.muted", "Reading …"));
		if (!this.dialog.open) this.dialog.showModal();
		const thread = scope === "thread" ? state.thread : null;
		const offset = -new Date().getTimezoneOffset();
		try {
			const usage = await get("/api/usage", { thread, offset });
			refill(body, ...this.sections(usage));
		} catch (error) {
			refill(body, el("p.error", error.message));
		}
	}

	sections({ total, turns, threads, models, days }) {
		if (!total.answers)
			return [el("p.muted", "No model has reported any usage yet.")];
		const parts = [totalLine(total)];
		if (turns) {
			const bars = turns.slice(-MOST_BARS).map((turn) => ({ label: clock(turn.created), ...turn }));
			parts.push(title("Turns"), plot(bars, "Tokens per turn"));
		}
		const byDay = days.slice(-MOST_BARS).map((day) => ({ label: day.day, ...day }));
		if (days.length > 1 || !turns) parts.push(title("Days"), plot(byDay, "Tokens per day"));
		parts.push(table("Model", models, ({ model }) => model));
		if (threads) parts.push(table("Thread", threads, ({ thread }) => this.link(thread)));
		parts.push(table("Day", [...days].reverse(), ({ day }) => day));
		if (turns) parts.push(table("Turn", [...turns].reverse(), ({ created }) => clock(created)));
		return parts;
	}

	link(thread) {
		return button(thread, () => {
			this.dialog.close();
			this.open(thread);
		});
	}
}

function title(text) {
	return el("p.part-title", text);
}

function totalLine({ answers, input, output, cached, cost, unpriced }) {
	const share = cached ? ` (${count(cached)} from the cache)` : "";
	const missing = unpriced ? ` ${plural(unpriced, "answer has", "answers have")} no price.` : "";
	return el(
		"div",
		el("p.big", dollars(cost)),
		el(
			"p",
			`${plural(answers, "answer")}: ${count(input)} tokens in${share}, ${count(output)} out.${missing}`,
		),
	);
}

/** "$0.0123": small amounts need more digits. "$?" if no price is known. */
export function dollars(cost) {
	if (cost === null || cost === undefined) return "$?";
	return `$${cost.toFixed(cost > 0 && cost < 1 ? 4 : 2)}`;
}

function table(label, rows, name) {
	const cells = (row) => [count(row.answers), count(row.input), count(row.output), dollars(row.cost)];
	const head = [label, "Answers", "In", "Out", "Cost"];
	return el(
		"details.usage-table",
		{ open: rows.length <= 12 },
		el("summary", `${label}s (${count(rows.length)})`),
		el(
			"table",
			el("thead", el("tr", ...head.map((text) => el("th", { scope: "col" }, text)))),
			el(
				"tbody",
				...rows.map((row) =>
					el(
						"tr",
						el("th", { scope: "row" }, name(row)),
						...cells(row).map((text) => el("td", text)),
					),
				),
			),
		),
	);
}

/** Bars of input and output tokens, one above the other. */
function plot(bars, label) {
	const most = Math.max(1, ...bars.map(({ input, output }) => input + output));
	const step = WIDTH / Math.max(bars.length, 12);
	const width = Math.max(1, step * 0.75);
	const height = (tokens) => (tokens / most) * HEIGHT;
	const columns = bars.map((bar, index) => {
		const [x, low, high] = [index * step, height(bar.input), height(bar.output)];
		const facts = `${bar.label}: ${count(bar.input)} in, ${count(bar.output)} out ${dollars(bar.cost)}`;
		return svg(
			"g",
			{},
			svg("title", {}, facts),
			svg("rect", { class: "bar-input", x, y: HEIGHT - low, width, height: low }),
			svg("rect", { class: "bar-output", x, y: HEIGHT - low - high, width, height: high }),
		);
	});
	const picture = svg(
		"svg",
		{
			viewBox: `0 0 ${WIDTH} ${HEIGHT + 1}`,
			class: "usage-plot",
			role: "img",
			"aria-label": `${label}, ${plural(bars.length, "bar")}, at most ${count(most)} tokens`,
		},
		svg("line", { x1: 0, y1: HEIGHT + 0.5, x2: WIDTH, y2: HEIGHT + 0.5, class: "axis" }),
		...columns,
	);
	const legend = el(
		"figcaption.muted",
		el("span.key.bar-input"),
		" in ",
		el("span.key.bar-output"),
		` out · highest ${count(most)} tokens · ${bars[0].label} to ${bars.at(-1).label}`,
	);
	return el("figure", picture, legend);
}
