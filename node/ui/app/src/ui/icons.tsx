// Icons, drawn for this dashboard on a grid of 16. They are decoration: the word beside
// one says what it means.
const paths = {
  overview: "M2 2h5v7H2zM9 2h5v4H9zM9 8h5v6H9zM2 11h5v3H2z",
  flow: "M2 4h3c4 0 3 4 9 4M2 12h3c4 0 3-4 9-4M2 8h12",
  connections: "M3 5h8l-2.5-2.5M13 11H5l2.5 2.5",
  logs: "M3 3h10M3 6.5h7M3 10h10M3 13.5h5",
  kafka: "M8 2v12M8 8h0M4 5.5h0M4 10.5h0M12 8h0M5 6l3 2M5 10l3-2M8 8h3",
  rollouts: "M2 13V9h4V6h4V3h4",
  history: "M3 8a5 5 0 1 0 1.6-3.7L3 6M3 3v3h3M8 5.5V8l2 1.5",
  permissions: "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4zM6 8l1.5 1.5L10.5 6.5",
  audit: "M4 2h6l3 3v9H4zM6.5 8h4M6.5 11h4M10 2v3h3",
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  check: "M3 8.500l3.5 3.500L13 4.5",
  sun: "M8 5.500a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 1.500V3M8 13v1.500M1.5 8H3M13 8h1.500M3.4 3.400l1 1M11.6 11.600l1 1M12.6 3.400l-1 1M4.4 11.600l-1 1",
  moon: "M13 9.500A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.500z",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  out: "M9 3H3v10h6M7 8h7M11.5 5.500L14 8l-2.5 2.5",
  right: "M6 3l5 5-5 5",
  ok: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM5.5 8.200L7.2 10l3.3-4",
  warning: "M8 2.500l6 11H2zM8 6.500v3.500M8 11.800v.2",
  error: "M5.5 2h5L14 5.500v5L10.5 14h-5L2 10.500v-5zM8 5v3.500M8 10.800v.2",
  idle: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM5.5 8h5",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 7.500V11M8 5v.2",
};

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
