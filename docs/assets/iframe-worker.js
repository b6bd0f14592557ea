// A page that is opened as a file may not start a Worker; the search needs one. Here a hidden frame
// stands in for it: the script runs there, and messages go to and fro.
(() => {
  if (location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inner.document.createElement("script");
          script.src = source;
          script.onload = done;
          script.onerror = failed;
          inner.document.body.append(script);
        });
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(new URL(source, url))), Promise.resolve());
      inner.postMessage = (data) => this.tell(data);
      inner.parent = inner;
      load(url).then(
        () => {
          this.isReady = true;
          this.waiting.splice(0).forEach((data) => this.hand(data));
        },
        (error) => this.onerror?.(error),
      );
    }
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.onmessage?.(event);
      this.dispatchEvent(event);
    }
    hand(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    postMessage(data) {
      if (this.isReady) this.hand(data);
      else this.waiting.push(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
})();
