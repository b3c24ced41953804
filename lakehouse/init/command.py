"""`lakehouse init`: makes a project from files that already exist."""

from pathlib import Path

import click

from lakehouse.base.text import size_text
from lakehouse.cli.output import flag, show, show_lines
from lakehouse.init.run import check_target, plan_project, write_project


@click.command("init", epilog="Example: lakehouse init shop --from orders.csv")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "source",
    required=True,
    metavar="SOURCE",
    help="A file, a folder, or s3://bucket/folder: CSV, JSON, Parquet or Avro, also change data.",
)
@click.option("--table", metavar="bronze/NAME", help="Default: by the name of SOURCE.")
@flag("--dry-run", help="Print the files, and write nothing.")
def init_command(folder: Path, source: str, table: str | None, dry_run: bool) -> None:
    """Make a project in FOLDER from the files of SOURCE. Does not start a JVM.

    Writes a package with a bronze table for the files and a silver table to edit, and the settings
    of its lake. Files on this machine are copied into the lake; files on S3 stay where they are.
    """
    target = folder.absolute()
    check_target(target)
    project = plan_project(source, target, table)
    if dry_run:
        for path, text in project.texts.items():
            show(f"==> {folder / path} <==")
            show_lines(text)
            show()
        for path, file in project.copies.items():
            show(f"==> {folder / path} <== ({size_text(file.size_bytes)}, copied)")
        return
    write_project(project, target)
    name = project.suggestion.table.name
    show(f"{folder} has bronze/{name} and silver/{name}, for {project.origin}.")
    show(f"Its tables will be in {project.root}.")
    show(f"Look at {folder / project.package}/bronze.py: formats and types are guessed.")
    for note in project.suggestion.notes:
        show(f"- {note}")
    show()
    for command in (f"cd {folder}", "lakehouse materialize", "dagster dev"):
        show(f"  {command}")
    show()
    show(f'Then read the table: lakehouse sql "SELECT * FROM silver.{name} LIMIT 10"')  # noqa: S608
