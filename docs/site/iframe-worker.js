// Browsers start no Worker for a page that was opened from a file. There, this class stands in for it: it runs the
// worker's script in an invisible frame, whose window has the same `onmessage` and `postMessage`.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.ready = new Promise((done) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow
          inside.postMessage = (data) => this.onmessage?.({ data })
          const script = inside.document.createElement("script")
          script.src = url
          script.onload = () => done(inside)
          script.onerror = () => this.onerror?.(new Event("error"))
          inside.document.body.append(script)
        }
      })
      document.body.append(this.frame)
    }
    postMessage(data) {
      this.ready.then((inside) => inside.onmessage({ data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
