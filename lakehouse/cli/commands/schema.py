"""`lakehouse schema`: the schema to declare for a file."""

from pathlib import Path

import click

from lakehouse.cli.context import open_declared
from lakehouse.cli.output import json_option, show, write_json
from lakehouse.engine.ingest.schema_of_file import file_schema


@click.command("schema", epilog="Example: lakehouse schema orders-0001.csv")
@click.argument("name", metavar="FILE")
@json_option
def schema_command(name: str, as_json: bool) -> None:
    """Print a schema to declare for FILE. Does not start a JVM.

    FILE is on this machine or below the lake's root. Prints a Landing to copy, with the types that
    a Parquet or Avro file records, or that the values of a CSV or JSON file have.
    """
    path = Path(name)
    data = path.read_bytes() if path.is_file() else open_declared().lake.store.read(name)
    found = file_schema(name, data)
    schema = found.schema
    csv = {"delimiter": schema.delimiter, "decimal": schema.decimal}
    plain = {"delimiter": ",", "decimal": "."}
    csv = {option: value for option, value in csv.items() if value != plain[option]}
    if as_json:
        write_json(
            {
                "file": name,
                "format": found.format,
                "schema": schema.ddl,
                "csv": csv,
                "null_value": schema.null_value,
                "encoding": found.encoding,
                "left_out": schema.left_out,
            }
        )
        return
    show("Landing(")
    show('    prefix="landing/…/",')
    show(f'    format="{found.format}",')
    show(f'    schema="""{schema.ddl}""",' if '"' in schema.ddl else f'    schema="{schema.ddl}",')
    if csv:
        options = ", ".join(f"{option}={value!r}" for option, value in csv.items())
        show(f"    csv=Csv({options}),")
    if schema.null_value is not None:
        show(f"    null_value={schema.null_value!r},")
    if found.encoding != "utf-8":
        show(f"    encoding={found.encoding!r},")
    show(")")
    if schema.left_out:
        names = ", ".join(map(repr, schema.left_out))
        show(f"# Names that cannot be columns, whose values are kept in _rescued: {names}")
