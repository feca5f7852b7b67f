"""Style sheet of the report: light and dark by the reader's setting."""

CSS = """
:root { --bg: #f6f7f9; --card: #fff; --ink: #1c2330; --dim: #667085; --rule: #e4e7ec; --c1: #2563eb; --c2: #e8590c;
  --c3: #2f9e44; --c4: #9c36b5; }
@media (prefers-color-scheme: dark) { :root { --bg: #12151c; --card: #1b202a; --ink: #e8ebf1; --dim: #98a2b3;
  --rule: #2c3342; --c1: #74a7ff; --c2: #ff9d5c; --c3: #69db7c; --c4: #da9bf0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 24px; background: var(--bg); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { margin: 0; font-size: 24px; } h2 { margin: 28px 0 10px; font-size: 17px; }
h3 { margin: 14px 0 6px; font-size: 13px; color: var(--dim); font-weight: 600; }
.badge { display: inline-block; margin-left: 10px; padding: 2px 10px; border-radius: 12px; font-size: 13px;
  vertical-align: 4px; color: #fff; background: var(--dim); }
.badge.Succeeded { background: #2f9e44; } .badge.Failed { background: #c92a2a; }
.message { margin: 4px 0 0; color: var(--dim); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(180px, 1fr)); gap: 10px; margin: 18px 0; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 10px 12px; } .tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
.tile span { color: var(--dim); font-size: 12px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 12px; }
figure { margin: 0; padding: 12px 14px 8px; } figcaption i { color: var(--dim); font-style: normal; font-size: 12px; }
.legend { float: right; font-size: 12px; color: var(--dim); } p.legend { float: none; margin: 0; }
.key { margin-left: 12px; } .key::before { content: ""; display: inline-block; width: 10px; height: 10px;
  margin-right: 5px; border-radius: 3px; background: currentColor; } p.legend .key:first-child { margin-left: 0; }
.card { padding: 14px; overflow-x: auto; } svg { display: block; width: 100%; height: auto; }
.grid { stroke: var(--rule); } .tick { fill: var(--dim); font-size: 11px; } .lane { fill: var(--ink); font-size: 12px; }
polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; } polyline.dashed { stroke-dasharray: 5 4; }
.c1 { stroke: var(--c1); color: var(--c1); } .c2 { stroke: var(--c2); color: var(--c2); }
.c3 { stroke: var(--c3); color: var(--c3); } .c4 { stroke: var(--c4); color: var(--c4); }
circle { stroke: none; } circle.c1 { fill: var(--c1); } circle.c2 { fill: var(--c2); }
circle.c3 { fill: var(--c3); } circle.c4 { fill: var(--c4); }
.s-sync { fill: #868e96; color: #868e96; } .s-prefill { fill: #15aabf; color: #15aabf; }
.s-decode { fill: #4c6ef5; color: #4c6ef5; } .s-reward { fill: #fab005; color: #fab005; }
.s-reference { fill: #a9e34b; color: #a9e34b; } .s-train { fill: #e8590c; color: #e8590c; }
.s-publish { fill: #d6336c; color: #d6336c; } .s-evaluate { fill: #7950f2; color: #7950f2; }
.s-checkpoint { fill: #5c4033; color: #a17a5f; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--dim); font-weight: 600; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.text { font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; max-width: 420px; }
td.number { font-variant-numeric: tabular-nums; } .empty { color: var(--dim); }
footer { margin-top: 28px; color: var(--dim); font-size: 12px; }
"""
