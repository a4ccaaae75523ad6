// How full the model's window is at the commit that is shown, and where compaction starts.

import { byId, count, plural } from "./dom.js";
import { effect } from "./signals.js";
import { state } from "./state.js";

/** Keep the gauge up to date. */
export function showGauge() {
	effect(() => {
		const { composer, model } = state;
		if (composer) show(model ? composer.context : { tokens: composer.context.tokens });
	});
}

function show({ tokens, window, limit, source }) {
	const share = window ? tokens / window : 0;
	const gauge = byId("gauge");
	gauge.value = Math.min(1, share);
	gauge.classList.toggle("high", Boolean(limit) && tokens > limit);
	byId("gauge-text").textContent = window
		? `${count(tokens)} of ${count(window)} tokens`
		: plural(tokens, "token");
	gauge.title =
		source === "reported"
			? "As the model reported with its last answer, and an estimate of what came after"
			: "An estimate of the messages and tools; the same count decides when compaction starts";
	const mark = byId("gauge-mark");
	mark.hidden = !limit;
	byId("gauge-limit").textContent = limit ? `compacts above ${count(limit)}` : "";
	if (!limit) return;
	mark.style.left = `${(100 * limit) / window}%`;
	mark.title = `Compaction starts at ${count(limit)} tokens`;
}
