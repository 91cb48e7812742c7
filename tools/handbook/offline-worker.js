// Browsers refuse a Worker on pages that are opened as files. This one runs the script in a hidden frame instead, so
// that the search of the handbook works without a server and without the network.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = this.onerror = this.onmessageerror = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.answer(structuredClone(data))
      const script = inside.document.createElement("script")
      script.onload = () => {
        for (const data of this.waiting.splice(0)) this.send(data)
        this.waiting = null
      }
      script.onerror = error => this.onerror?.(error)
      script.src = new URL(url, location.href).href
      inside.document.body.append(script)
    }
    answer(data) {
      setTimeout(() => this.onmessage?.({ data }))
    }
    send(data) {
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }
    postMessage(message) {
      const data = structuredClone(message) // as a real one does: neither side sees what the other changes later
      if (this.waiting) this.waiting.push(data)
      else this.send(data)
    }
    terminate() {
      this.onmessage = this.onerror = null
      this.frame.remove()
    }
  }
}
