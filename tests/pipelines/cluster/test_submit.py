"""A pipeline started by `spark-submit`, as operators and YARN do."""

import os
import subprocess
import sys
from pathlib import Path

from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.embedded.java import java_home

PROGRAM = """
from tidegauge.pipelines.spark.session import start_session

session = start_session("submitted")
context = session.sparkContext
print("at", context.master, context.getConf().get("spark.executor.memory"))
print("in", session.conf.get("spark.sql.session.timeZone"))
"""


def test_its_master_and_settings_hold(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    submit = Path(sys.executable).with_name("spark-submit")
    environ = {"JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}

    ran = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.executor.memory=3g", program],
        env=os.environ | environ | {"SPARK_MASTER": "local[2]"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert "at local[1] 3g\nin UTC\n" in ran.stdout, ran.stderr
