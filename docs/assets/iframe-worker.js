/* A browser starts no worker for a page that is opened from a folder (file:). The search of the site then runs in a
   hidden frame, behind the interface of a worker. */
"use strict";

if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      const page = this.frame.contentDocument;
      page.open();
      page.write("<!doctype html><title>search</title><body></body>");
      page.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = page.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
      });
      this.loaded.catch((cause) => this.dispatchEvent(new ErrorEvent("error", { error: cause })));
      page.body.appendChild(script);
    }

    postMessage(data) {
      this.loaded.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
