import time, pytest, json
from datetime import datetime, timedelta, UTC
from pipelines.jobs.unique_events import unique_events
from pipelines.jobs.sessions import sessions
from pipelines.jobs.ad_clicks import ad_clicks
pytestmark = pytest.mark.spark
N=100_000
S=datetime(2024,1,1,tzinfo=UTC)
def show(ws, label):
    print("SPEED", label, ws.rows("SELECT pipeline, txid, rows_in, extract(epoch from committed_at-started_at)::float FROM tidemark.batch ORDER BY 1,2"))
def test_unique(workspace):
    for f in range(2):
        workspace.land(f"{f}.json", *({"id": f"e{i+f*N//2}", "product": f"p{i%50}", "amount": 1.5, "at": "2024-01-01T00:00:00Z"} for i in range(N)))
    workspace.run(unique_events(workspace.input,1)); show(workspace,"unique")
def test_sessions(workspace):
    for f in range(3):
        workspace.land(f"{f}.json", *({"user": f"u{i%20000}", "at": (S+timedelta(hours=f*2,seconds=i/100)).isoformat()} for i in range(N)))
    workspace.run(sessions(workspace.input,1)); show(workspace,"sessions")
def test_clicks(workspace):
    for d in ("impressions","clicks"): (workspace.input/d).mkdir()
    for f in range(3):
        (workspace.input/"impressions"/f"{f}.json").write_text("".join(json.dumps({"ad": f"a{i+f*N}", "campaign": f"c{i%9}", "shown_at": (S+timedelta(hours=f*2,seconds=i/100)).isoformat()})+"\n" for i in range(N)))
        (workspace.input/"clicks"/f"{f}.json").write_text("".join(json.dumps({"ad": f"a{i*10+f*N}", "clicked_at": (S+timedelta(hours=f*2,seconds=60+i/10)).isoformat()})+"\n" for i in range(N//10)))
    workspace.run(ad_clicks(workspace.input,1)); show(workspace,"clicks")
