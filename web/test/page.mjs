// The page itself, as a person has it: pictures of it, keyboard, and what it says.
import assert from "node:assert/strict";
import path from "node:path";

export function pageTests({ visit, shots, expected }) {
  const picture = (page, name) => page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: false });
  const DESK = { viewport: { width: 900, height: 700 } };
  const PHONE = { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true };

  /** Waits until an answer has ended. */
  const answered = (page) => page.waitForFunction(() => document.querySelector("#talk article") && !document.querySelector("#talk .busy"));

  return {
    async page() {
      const { page, end, complaints } = await visit({ ...DESK, address: "/index.html" });
      await picture(page, "empty");
      assert.match(await page.textContent("#runs"), /No model/);
      await page.click("#default");
      await page.waitForSelector("#say:visible");
      assert.match(await page.textContent("#runs"), /Austen 4\.5M \(q8_0, 4\.7 MB\) runs on WebAssembly/);
      await page.click("#show-settings");
      await page.fill("#temperature", "0");
      await page.fill("#most", "48");
      assert.match(await page.textContent("#kept"), /austen-q8_0\.gguf, 4\.8 MB/);
      await picture(page, "settings");
      await page.click("#show-settings");
      await page.fill("#prompt", expected.prompt);
      await page.keyboard.press("Enter");
      await answered(page);
      assert.equal(await page.textContent("#talk article"), expected.prompt + expected.greedy);
      assert.match(await page.textContent("#speed"), /tokens\/s · first after .* · as long as asked/);
      await picture(page, "answered");
      // Stopped in the middle, by the key for it.
      await page.evaluate(() => (document.getElementById("most").value = "400"));
      await page.fill("#prompt", "It is");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector("#talk .busy")?.textContent.length > 30);
      await picture(page, "answering");
      await page.keyboard.press("Escape");
      await answered(page);
      assert.match(await page.textContent("#speed"), /stopped/);
      await page.click("#close");
      await page.waitForSelector("#open:visible");
      assert.deepEqual(complaints, []);
      await end();
    },

    async loading() {
      const gates = [];
      const answer = (request, response) => {
        if (!request.url.startsWith("/slow.gguf")) return false;
        response.writeHead(206, { "content-range": `bytes 0-49999999/50000000`, "content-length": 50_000_000, "cross-origin-resource-policy": "same-origin" });
        response.write(Buffer.alloc(2_000_000));
        gates.push(setInterval(() => response.write(Buffer.alloc(500_000)), 200));
        return true;
      };
      const { page, end } = await visit({ ...DESK, address: "/index.html", answer });
      await page.fill("#url", "slow.gguf");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => /MB\/s · .* left/.test(document.getElementById("how-far").textContent));
      await picture(page, "loading");
      await page.click("#cancel");
      await page.waitForSelector("#open:visible");
      assert.equal(await page.isVisible("#error"), false);
      gates.forEach(clearInterval);
      await end();
    },

    async phone() {
      const { page, end } = await visit({ ...PHONE, colorScheme: "dark", address: "/index.html" });
      const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
      assert.ok(await fits());
      await picture(page, "phone-empty");
      await page.tap("#default");
      await page.waitForSelector("#say:visible");
      await page.tap("#show-settings");
      assert.ok(await fits());
      await picture(page, "phone-settings");
      await page.tap("#show-settings");
      await page.tap("#send");
      await answered(page);
      assert.ok(await fits());
      await picture(page, "phone");
      await end();
    },

    /** What is said without WebGPU, without isolation, in an old browser, and of a file that is no model. */
    async words() {
      const { page, end } = await visit({ ...DESK, address: "/index.html", headers: {}, args: ["--disable-features=WebGPU"] });
      assert.match(await page.textContent("#notice"), /not isolated/);
      await page.setInputFiles("#file", { name: "photo.gguf", mimeType: "image/png", buffer: Buffer.from("\x89PNG and so on") });
      await page.waitForSelector("#error:visible");
      assert.match(await page.textContent("#error"), /photo\.gguf: .*\nGive a GGUF file/);
      await picture(page, "error");
      await page.click("#show-settings");
      await page.selectOption("#device", "webgpu");
      await page.click("#default");
      await page.waitForSelector("#error:visible");
      assert.match(await page.textContent("#error"), /WebGPU.*\nOpen with device/);
      await page.selectOption("#device", "auto");
      await page.click("#default");
      await page.waitForSelector("#say:visible");
      assert.match(await page.textContent("#runs"), /runs on WebAssembly on one thread: .*WebGPU/);
      await page.click("#close");
      await page.evaluate(() => (WebAssembly.validate = () => false));
      await page.click("#default");
      await page.waitForSelector("#error:visible");
      assert.match(await page.textContent("#error"), /no WebAssembly SIMD\nUpdate the browser/);
      await end();
    },

    /** A name for everything that can be used, and contrast, as far as a program can see. */
    async access() {
      for (const colorScheme of ["light", "dark"]) {
        const { page, end } = await visit({ ...DESK, colorScheme, address: "/index.html" });
        await page.click("#show-settings");
        const found = await page.evaluate(() => {
          const nameless = [...document.querySelectorAll("button, input, select, textarea, progress")].filter((item) => {
            const labels = [...(item.labels ?? [])].map((label) => label.textContent).join("");
            return !(item.getAttribute("aria-label") || item.getAttribute("aria-labelledby") || labels.trim() || item.textContent.trim());
          });
          const light = (color) => {
            const parts = color.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255);
            const [r, g, b] = parts.map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const pale = [...document.querySelectorAll("p, h1, h2, button, label, li")].flatMap((item) => {
            let behind = item;
            while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            const [a, b] = [getComputedStyle(item).color, getComputedStyle(behind ?? document.documentElement).backgroundColor].map(light);
            const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            return contrast < 4.5 ? [`${item.tagName} ${item.textContent.trim()}: ${contrast.toFixed(2)}`] : [];
          });
          return { nameless: nameless.map((item) => item.outerHTML), pale };
        });
        assert.deepEqual(found, { nameless: [], pale: [] });
        // By keyboard alone: the first stop leads to the main part, and focus can be seen.
        await page.focus("body");
        await page.keyboard.press("Tab");
        assert.match(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), /solid|auto/);
        await end();
      }
    },
  };
}
