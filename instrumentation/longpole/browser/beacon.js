// longpole's browser beacon: when an answer was on the page, as OpenTelemetry spans. How: docs/browser.md
// Nothing here throws into the page, reads its text or stores anything in the browser.
((w, d) => {
  const own = d.currentScript ? d.currentScript.dataset : {};
  const clock = w.performance;
  const now = () => clock.now();
  const stats = { sent: 0, failed: 0 };
  const open = new Set();
  const inputs = [];
  const TRACEPARENT = /00-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})/;
  const id = (bytes) =>
    Array.from(w.crypto.getRandomValues(new Uint8Array(bytes)), (byte) =>
      byte.toString(16).padStart(2, "0")).join("");
  const instance = id(8); // one page, one clock
  const KINDS = { string: "stringValue", boolean: "boolValue" };
  const attributes = (facts) =>
    Object.entries(facts).filter(([, value]) => value != null).map(([key, value]) => ({
      key,
      value: { [KINDS[typeof value] || (Number.isInteger(value) ? "intValue" : "doubleValue")]: value },
    }));

  let observer;
  const take = (entries) => {
    inputs.push(...entries.filter((entry) => entry.interactionId));
    inputs.splice(0, inputs.length - 99);
  };
  try {
    observer = new PerformanceObserver((list) => take(list.getEntries()));
    observer.observe({ type: "event", durationThreshold: 16, buffered: true });
  } catch { /* this browser does not tell */ }

  function traceOf(source) {
    if (source && source.headers) source = source.headers.get("server-timing");
    else if (!source) {
      const meta = d.querySelector("meta[name=traceparent]");
      const [page] = clock.getEntriesByType("navigation");
      const entry = page && (page.serverTiming || []).find((each) => each.name == "traceparent");
      source = meta ? meta.content : entry && entry.description;
    }
    return TRACEPARENT.exec(source);
  }

  function start(name, parent, at = now()) {
    // the machine slept, or its clock was set or slewed; Date.now() is cut to whole ms
    const drift = Date.now() + 0.5 - clock.timeOrigin - now();
    const origin = clock.timeOrigin + (Math.abs(drift) > 2 ? drift : 0);
    const ns = (time) => Math.round((origin + time) * 1e3) + "000";
    const since = (time) => time && Math.max(time - at, 0) / 1e3;
    const trace = parent ? parent[1] : id(16);
    const spanId = id(8);
    const fetchId = parent ? spanId : id(8);
    const request = { at };
    let acknowledged, first, last, firstPaint, lastPaint, end, mutations, isDirty, isWaiting, isOver;
    let updates = 0, changes = 0, hidden = 0, hiddenAt = d.hidden ? at : null;

    const frame = () =>
      w.requestAnimationFrame(() => {
        isDirty = false; // what is in the page by now is painted with this frame
        w.requestAnimationFrame(() => {
          lastPaint = now();
          firstPaint = firstPaint || lastPaint;
          if (isDirty) return frame();
          isWaiting = false;
          if (end) send("completed");
        });
      });
    const turned = () => {
      changes++;
      if (d.hidden) hiddenAt = now();
      else hidden += now() - hiddenAt;
      if (d.hidden && end) send("completed");
      if (!d.hidden) hiddenAt = null;
    };
    const left = () => send(end ? "completed" : "closed_early");

    function send(state) {
      if (isOver) return;
      isOver = true;
      open.delete(left);
      d.removeEventListener("visibilitychange", turned);
      if (mutations) mutations.disconnect();
      if (!own.collector || (parent && !(parseInt(parent[3], 16) & 1))) return;
      const done = end || now();
      const stop = Math.max(done, lastPaint || 0);
      if (hiddenAt != null) hidden += Math.max(stop - hiddenAt, 0);
      if (observer) take(observer.takeRecords());
      const waits = inputs.filter((e) => e.startTime >= at && e.startTime <= stop).map((e) => e.duration);
      const span = (spanId, parentSpanId, kind, word, from, to, facts) => ({
        traceId: trace, spanId, parentSpanId, kind, name: word + name,
        startTimeUnixNano: ns(from), endTimeUnixNano: ns(to), attributes: attributes(facts),
        status: { code: facts["error.type"] ? 2 : 0 },
      });
      const spans = [span(spanId, parent ? parent[2] : "", 1, parent ? "render " : "page ", at, stop, {
        "longpole.stage": "render",
        "longpole.detached": parent ? true : null, // the server's span does not wait for the page
        "longpole.stream.state": state,
        "longpole.render.time_to_acknowledged": since(acknowledged),
        "longpole.render.time_to_first_content": since(first),
        "longpole.render.time_to_first_paint": since(firstPaint),
        "longpole.render.time_to_last_content": since(last),
        "longpole.render.time_to_last_paint": since(lastPaint),
        "longpole.render.num_updates": updates,
        "longpole.render.num_visibility_changes": changes,
        "longpole.render.hidden": hidden / 1e3,
        "longpole.render.inp": waits.length ? Math.max(...waits) / 1e3 : null,
      })];
      if (!parent) {
        const entry = clock.getEntriesByName(request.url || "").find((e) => e.startTime >= request.at);
        const to = (entry && entry.responseEnd) || done;
        spans.push(span(fetchId, spanId, 3, "fetch ", request.at, Math.min(to, done), {
          "longpole.stage": "network",
          "http.response.status_code": request.status,
          "error.type": request.error,
        }));
      }
      const resource = { "service.name": own.service || "browser", "service.instance.id": instance };
      post({ resourceSpans: [{
        resource: { attributes: attributes(resource) },
        scopeSpans: [{ scope: { name: "longpole.browser" }, spans }],
      }] });
    }

    d.addEventListener("visibilitychange", turned);
    open.add(left);
    w.requestAnimationFrame(() => w.requestAnimationFrame(() => { acknowledged = now(); }));
    const r = {
      traceparent: `00-${trace}-${fetchId}-01`,
      async fetch(url, init) {
        const made = new Request(url, init);
        made.headers.set("traceparent", r.traceparent);
        request.url = made.url;
        request.at = now();
        try {
          const response = await w.fetch(made);
          request.status = response.status;
          if (!response.ok) request.error = String(response.status);
          return response;
        } catch (error) {
          request.error = error.name;
          throw error;
        }
      },
      content() {
        if (isOver || end) return;
        updates++;
        last = now();
        first = first || last;
        isDirty = true;
        if (!isWaiting) frame();
        isWaiting = true;
      },
      observe(element) {
        mutations = new MutationObserver(r.content);
        mutations.observe(element, { childList: true, subtree: true, characterData: true });
        return r;
      },
      end() {
        if (mutations && mutations.takeRecords().length) r.content();
        end = end || now();
        if (!isWaiting || d.hidden) send("completed");
      },
    };
    return r;
  }

  function post(body) {
    const headers = { "content-type": "application/json" };
    if (own.key) headers.authorization = "Bearer " + own.key;
    const url = own.collector.replace(/\/$/, "") + "/v1/traces";
    w.fetch(url, { method: "POST", keepalive: true, credentials: "omit", headers, body: JSON.stringify(body) })
      .then((answer) => stats[answer.ok ? "sent" : "failed"]++, () => stats.failed++);
  }

  w.addEventListener("pagehide", () => open.forEach((left) => left()));
  w.longpole = {
    config: own,
    stats,
    begin: (name = "page", at) => start(name, null, at),
    render: (source, name = "page", at) => start(name, traceOf(source), at),
  };
})(window, document);
