// Puts the desk into a corner of a page: <script src="https://desk.example/widget.js" data-person="YOUR-ID" defer></script>
(() => {
  const script = document.currentScript;
  const address = new URL("/", script.src);
  if (script.dataset.person) address.searchParams.set("person", script.dataset.person);
  const zh = /^zh\b/i.test(document.documentElement.lang || navigator.language);
  const button = document.createElement("button");
  const frame = document.createElement("iframe");
  button.type = "button";
  button.textContent = zh ? "客服" : "Help";
  button.setAttribute("aria-expanded", "false");
  Object.assign(button.style, { position: "fixed", right: "1rem", bottom: "1rem", zIndex: 99999, padding: ".7rem 1.2rem",
    border: "0", borderRadius: "99px", background: "#3b5bdb", color: "#fff", font: "600 1rem system-ui, sans-serif", cursor: "pointer" });
  frame.title = button.textContent;
  frame.hidden = true;
  Object.assign(frame.style, { position: "fixed", right: "1rem", bottom: "4.5rem", zIndex: 99999, border: "1px solid #8884", borderRadius: "14px",
    width: "min(24rem, calc(100vw - 2rem))", height: "min(36rem, calc(100vh - 6rem))", boxShadow: "0 8px 40px #0004" });
  button.addEventListener("click", () => {
    if (!frame.src) frame.src = address.href;
    frame.hidden = !frame.hidden;
    frame.style.display = frame.hidden ? "none" : "block";
    button.setAttribute("aria-expanded", String(!frame.hidden));
  });
  frame.style.display = "none";
  document.body.append(frame, button);
})();
