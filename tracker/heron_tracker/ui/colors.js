// Colours that stay apart for people who do not see all of them: after Okabe and Ito, darker on light pages.

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#a8508c", "#b38600", "#2b9fd8", "#7a5195", "#6b6b6b", "#8c4a1f", "#3b7d23"];
const DARK = ["#4aa3df", "#f0813a", "#2cc295", "#dc8fc0", "#e0b93c", "#7fd0f5", "#ac8bd6", "#a3a3a3", "#c98e63", "#8cc76f"];
/** From well to badly: blue over yellow to red differ in lightness, too. */
const HEALTH = [[59, 111, 181], [86, 160, 200], [232, 200, 80], [230, 130, 50], [196, 45, 60]];

const dark = () => document.documentElement.dataset.theme === "dark";

/** The colour of the component of this number. */
export function componentColor(n) {
  const palette = dark() ? DARK : LIGHT;
  return palette[n % palette.length];
}

/** The colour of a share from 0 (well) to 1 (badly); grey for what is not known. */
export function healthColor(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return dark() ? "#3a4552" : "#cdd3da";
  const place = Math.min(1, Math.max(0, share)) * (HEALTH.length - 1);
  const low = Math.min(HEALTH.length - 2, Math.floor(place));
  const mixed = HEALTH[low].map((from, n) => Math.round(from + (HEALTH[low + 1][n] - from) * (place - low)));
  return `rgb(${mixed.join(",")})`;
}

/** A colour of the style sheet. */
export const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
