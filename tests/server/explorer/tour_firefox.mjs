// What a person sees of the explorer's page in Firefox, by WebDriver BiDi: values, colours, a box, a line, chunks; as JSON.
import puppeteer from "puppeteer-core";

const [program, address, rows, columns] = process.argv.slice(2);
const browser = await puppeteer.launch({ browser: "firefox", executablePath: program, headless: true });
const seen = { agent: await browser.version(), errors: [] };
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(120_000);
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  await page.setViewport({ width: 1280, height: 900 });
  await page.goto(address);
  const pictureIsThere = () =>
    page.waitForSelector(":is(.field-view, .chunk-view)[aria-busy=false] .axes .frame");
  const placeOf = async (row, column) => {
    const surface = await page.$(".surface");
    await surface.scrollIntoView();
    const box = await surface.boundingBox();
    return [
      box.x + (box.width * (column + 0.5)) / Number(columns),
      box.y + box.height * (1 - (row + 0.5) / Number(rows)),
    ];
  };
  const hover = async (row, column) => {
    await page.mouse.move(...(await placeOf(row + 1, column)));
    await page.mouse.move(...(await placeOf(row, column)));
    await page.waitForFunction(
      (y, x) => /\d/.test(document.querySelector(`.readout[data-y="${y}"][data-x="${x}"] .value`)?.textContent ?? ""),
      {},
      row,
      column,
    );
    return page.$eval(".readout .value", (element) => element.textContent);
  };
  await pictureIsThere();
  seen.hovered = await hover(5, 30);
  await page.waitForFunction(() => document.querySelector(".readout").textContent.includes("exact"));
  seen.exact = await page.$eval(".readout .value", (element) => element.textContent);
  seen.colours = await page.$eval("canvas.raster", (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });

  await page.focus("input[name=time]");
  for (let step = 0; step < 6; step++) await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.querySelector(".caption").textContent.includes("2001-03-04"));
  await pictureIsThere();
  seen.later = await hover(5, 30);

  await page.mouse.click(...(await placeOf(11, 25)));
  await page.waitForSelector(".u-over");
  const plot = await (await page.$(".u-over")).boundingBox();
  await page.mouse.move(plot.x + (plot.width * 5) / 11, plot.y + plot.height / 2);
  await page.waitForFunction(() => document.querySelector(".u-legend .u-value").textContent.startsWith("2001-03-03"));
  seen.line = await page.$$eval(".u-legend .u-value", (values) => values[1].textContent);

  await page.click("[data-mode=zoom]");
  await page.mouse.move(...(await placeOf(17, 10)));
  await page.mouse.down();
  await page.mouse.move(...(await placeOf(12, 20)));
  await page.mouse.move(...(await placeOf(6, 29)));
  await page.mouse.up();
  await page.waitForFunction(() => location.hash.includes("box"));
  seen.box = JSON.parse(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("box"));

  await page.goto(`${address}&view=chunks`);
  await page.reload();
  await pictureIsThere();
  seen.chunks = await page.$eval("canvas", (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
