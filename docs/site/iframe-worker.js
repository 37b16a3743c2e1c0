// Browsers start no Worker for a page that was opened from a file. On such pages this class replaces it: it runs the
// worker's script in an invisible frame, whose window has the same `onmessage` and `postMessage`. As with a Worker,
// a message is a copy, and arrives after the caller has returned.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.inside = new Promise((done) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow
          inside.postMessage = (data) => this.deliver(this, data)
          const script = inside.document.createElement("script")
          script.src = url
          script.onload = () => done(inside)
          script.onerror = (event) => this.onerror?.(event)
          inside.document.body.append(script)
        }
      })
      document.body.append(this.frame)
    }
    postMessage(data) {
      this.inside.then((inside) => this.deliver(inside, data))
    }
    deliver(receiver, data) {
      const copy = structuredClone(data)
      setTimeout(() => receiver.onmessage?.({ data: copy }))
    }
    terminate() {
      this.frame.remove()
    }
  }
